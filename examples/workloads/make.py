#!/usr/bin/env python3
"""Writes the example workloads beside this file. The text is made up here, and the same on every machine.

    python3 examples/workloads/make.py           # writes the four .jsonl files
    python3 examples/workloads/make.py --check   # exit 1 when a file differs from what would be written
"""

import json
import pathlib
import sys

SUBJECTS = """the lock keeper|a survey of the estuary|the new container crane|the night ferry|an old lighthouse
the dredging of the channel|a load of grain|the harbour office|a pilot boat|the tide gauge|the dry dock
a ship's cook|the customs shed|a cable layer|the breakwater|the radio room""".replace("\n", "|").split("|")
VERBS = """records|delays|reports on|measures|repairs|waits for|overlooks|depends on|explains|counts|replaces
warns of|pays for|inspects""".replace("\n", "|").split("|")
OBJECTS = """a change of wind|three late arrivals|the depth over the bar|a missing manifest|the price of fuel
two worn bearings|the morning shift|a leak in the hold|the weight of the cargo|an unlit buoy
a disagreement about the draught|the last train inland|a box of spare lamps|the spring tide""".replace(
    "\n", "|"
).split("|")
WHEN = """before dawn|on the second day|while it rains|for the third time this year|after the bell
without telling anybody|as the rules ask|when the fog lifts|in the dark|at slack water""".replace("\n", "|").split(
    "|"
)
SHORT_TASKS = [
    "Tell a long story about {} that {} {} {}.",
    "Write a detailed report: {} {} {} {}.",
    "Describe a whole day in which {} {} {} {}.",
    "Write a dialogue of many turns. The occasion: {} {} {} {}.",
]
QUESTIONS = [
    "In one sentence, what is this text about?",
    "Name the single most important fact above.",
    "Which of these events came last?",
    "Give a title of at most six words.",
]
RULES = [
    "You answer questions about a harbour for people who work there.",
    "Answer from the notes below and from nothing else.",
    "If the notes do not say, reply that they do not say.",
    "Use short sentences. Give depths in metres and weights in tonnes.",
]


class Random:
    """A 64-bit linear congruential generator: no library's generator changes under it."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound

    def pick(self, items):
        return items[self.below(len(items))]

    def between(self, low, high):
        return low + self.below(high - low + 1)


def parts(random):
    return (random.pick(SUBJECTS), random.pick(VERBS), random.pick(OBJECTS), random.pick(WHEN))


def notes(random, chars):
    """Sentences up to about so many characters."""
    text = ""
    while len(text) < chars:
        sentence = " ".join(parts(random))
        text += sentence[0].upper() + sentence[1:] + ". "
    return text.rstrip()


def short_prompt(random, row):
    return f"{random.pick(SHORT_TASKS).format(*parts(random))} (case {row})"


def short_prefill_long_decode(random):
    for row in range(48):
        yield {"prompt": short_prompt(random, row), "max_tokens": random.between(192, 384)}


def long_prefill_short_decode(random):
    for row in range(32):
        text = notes(random, random.between(3000, 5500))
        yield {"prompt": f"Notes {row}. {text}\n\n{random.pick(QUESTIONS)}", "max_tokens": random.between(8, 32)}


def mixed(random):
    for row in range(64):
        kind = random.below(4)
        if kind == 0:
            text = notes(random, random.between(1500, 3000))
            yield {"prompt": f"Notes {row}. {text}\n\n{random.pick(QUESTIONS)}", "max_tokens": random.between(16, 48)}
        elif kind == 1:
            yield {"prompt": short_prompt(random, row), "max_tokens": random.between(128, 256)}
        else:
            text = notes(random, random.between(200, 700))
            yield {"prompt": f"{text}\n\nContinue these notes (case {row}).", "max_tokens": random.between(32, 96)}


def shared_prefix(random):
    """Conversations whose first message is one of four; for --api chat."""
    systems = [" ".join(RULES) + "\n\nNotes:\n" + notes(random, 1600) for _ in range(4)]
    for row in range(48):
        subject, verb, thing, when = parts(random)
        question = f"Case {row}: is it so that {subject} {verb} {thing} {when}?"
        yield {
            "messages": [
                {"role": "system", "content": systems[row % len(systems)]},
                {"role": "user", "content": question},
            ],
            "max_tokens": random.between(24, 96),
        }


FILES = {
    "short-prefill-long-decode.jsonl": (short_prefill_long_decode, 1),
    "long-prefill-short-decode.jsonl": (long_prefill_short_decode, 2),
    "mixed.jsonl": (mixed, 3),
    "shared-prefix.jsonl": (shared_prefix, 4),
}


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    folder = pathlib.Path(__file__).resolve().parent
    for name, (rows, seed) in FILES.items():
        content = "".join(json.dumps(row) + "\n" for row in rows(Random(seed)))
        path = folder / name
        if not check:
            path.write_text(content, encoding="utf-8", newline="\n")
        elif not path.exists() or path.read_text(encoding="utf-8") != content:
            sys.exit(f"{name} is not what make.py writes; run it without --check")


if __name__ == "__main__":
    main()
