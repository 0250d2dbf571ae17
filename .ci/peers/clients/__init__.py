"""The clients that are measured, a module each: whether it is here, its command, and how its results are read."""

import os
from typing import NamedTuple, Optional

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
INSTALLED = os.path.join(TOP, ".bench-peers")
TOKENIZER = os.path.join(INSTALLED, "tokenizer")
TRIMMED = os.path.join(TOP, ".ci", "peers", "trimmed.py")

# Not "null", which GuideLLM takes for no name. The engine answers to any.
MODEL = "mock"
PROMPT_TOKENS = 32
OUTPUT_TOKENS = 128


class Job(NamedTuple):
    """One run of a client: `requests` at a constant `rate`, or by `concurrency` workers in a closed loop."""

    url: str
    requests: int
    rate: Optional[float]
    concurrency: Optional[int]
    folder: str  # empty, for whatever the client writes

    def file(self, name):
        return os.path.join(self.folder, name)


class Reported(NamedTuple):
    """What a client says of a run, in seconds."""

    requests: int
    failed: int
    ttft_p50: float
    ttft_p99: float


class Command(NamedTuple):
    """What is run."""

    arguments: list
    environment: dict
    folder: Optional[str] = None


def environment(**more):
    """Of a client in Python: nothing is looked up outside."""
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **more,
    }


def version_installed(name):
    """What setup.sh has written of an installation that is complete; None without one."""
    try:
        with open(os.path.join(INSTALLED, name + ".installed")) as file:
            return file.read().strip()
    except OSError:
        return None


class Client:
    """A client. `name` selects it, `title` is for people."""

    name = ""
    title = ""
    # Its arrivals can have equal gaps; else they are not held against a schedule.
    constant = True
    # Starts and ends so slowly that it is measured once, with fewer requests.
    slow = False
    # What a reader has to know of how it is run here.
    note = ""

    def version(self):
        """None where it is not installed."""
        return version_installed(self.name)

    def command(self, job):
        raise NotImplementedError

    def read(self, job):
        """What it reports; raises OSError, ValueError or KeyError where that is not to be had."""
        raise NotImplementedError


def every():
    """All of them, in the order of the tables."""
    from clients import aiperf, guidellm, inference_perf, plimsoll, sglang, vllm

    return [
        plimsoll.Plimsoll(),
        sglang.Rust(),
        sglang.Python(),
        vllm.Vllm(),
        aiperf.Aiperf(),
        guidellm.Guidellm(),
        inference_perf.InferencePerf(),
    ]
