"""The tables of a comparison, out of its results, and their place in docs/benchmarks.md."""

import figures

BEGIN = "<!-- make bench-peers --write writes from here -->"
END = "<!-- make bench-peers: to here -->"

EVENTS = 128
MIB = 1 << 20
US, MS = 1e6, 1e3

NONE = "–"


def render(results):
    """Everything between the markers."""
    data = Data(results)
    parts = [conditions(data), "### Done when", done_when(data), "### Cost", cost(data), "### Schedule and TTFT", schedule(data)]
    parts += ["### Commands", commands(data)]
    if (trouble := problems(data)) is not None:
        parts += ["### What went wrong", trouble]
    return "\n\n".join(parts)


def write(page, tables, begin_mark=BEGIN, end_mark=END):
    with open(page) as file:
        text = file.read()
    before, begin, rest = text.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not (begin and end):
        raise SystemExit("bench: %s: the markers are missing: %s and %s" % (page, begin_mark, end_mark))
    with open(page, "w") as file:
        file.write("%s%s\n\n%s\n\n%s%s" % (before, begin, tables, end, after))


class Data:
    """Rows by client and kind."""

    def __init__(self, results):
        self.machine = results["machine"]
        self.seconds = results["seconds"]
        self.clients = results["clients"]
        self.rows = results["rows"]

    def names(self):
        """Clients with a result, Plimsoll first; wrk is no client of an LLM."""
        return [name for name in self.clients if name != "wrk" and any(r["client"] == name for r in self.rows)]

    def of(self, name, kind):
        return [r for r in self.rows if r["client"] == name and r["kind"] == kind and r["problem"] is None]

    def each(self, name, kind, value):
        """The spread of a value over the turns; None without any."""
        return figures.spread([value(row) for row in self.of(name, kind)])

    def costs(self, name, small, large, of=lambda row: row["cpu_seconds"]):
        """(fixed, marginal) CPU seconds of each turn that has both runs."""
        found = []
        for big in self.of(name, large):
            for little in self.of(name, small):
                if little["turn"] == big["turn"]:
                    runs = [(row["requests"], of(row)) for row in (little, big)]
                    found.append(figures.cost(*runs))
        return found

    def per_event(self, name):
        """CPU seconds for an event, back to back, and what a run costs anyway."""
        costs = self.costs(name, "small", "large")
        return figures.spread([c.marginal / EVENTS for c in costs]), figures.spread([c.fixed for c in costs])

    def paced_per_event(self, name):
        """The same for events 10 ms apart. Clients with one paced run have the closed loop's fixed cost taken off."""
        if costs := self.costs(name, "paced-small", "paced-large"):
            return figures.spread([c.marginal / EVENTS for c in costs])
        _, fixed = self.per_event(name)
        if fixed is None:
            return None
        return self.each(name, "paced-large", lambda r: (r["cpu_seconds"] - fixed.median) / r["requests"] / EVENTS)

    def floor(self):
        """wrk: CPU seconds for an event in one write."""
        return self.each("wrk", "streams", lambda r: r["cpu_seconds"] / r["requests"] / EVENTS)


def number(value):
    """Three significant digits, without an exponent."""
    if value is None:
        return NONE
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return format(value, ",.%df" % digits)


def shown(found, scale=1.0):
    """The median, with the least and the greatest of several turns."""
    if found is None:
        return NONE
    text = number(found.median * scale)
    return text if found.turns == 1 else "%s (%s–%s)" % (text, number(found.low * scale), number(found.high * scale))


def grid(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def conditions(data):
    machine = data.machine
    others = [r["other_cores"] for r in data.rows]
    load = [r["load"] for r in data.rows]
    turns = 1 + max(r["turn"] for r in data.rows)
    once = [data.clients[n]["title"] for n in data.names() if turns > 1 and {r["turn"] for r in data.rows if r["client"] == n} == {0}]
    busiest = max((r["engine_cpu_seconds"] / ((r["ended_ns"] - r["started_ns"]) / 1e9) for r in data.rows), default=0)
    text = "%s, commit %s, %d cores of %s, Linux %s; %d s, %s" % (
        machine["date"],
        machine["commit"],
        machine["cores"],
        machine["model"],
        machine["kernel"],
        data.seconds,
        "one turn" if turns == 1 else "%d turns, medians (least–greatest)" % turns,
    )
    if once:
        text += "; one turn of %s" % ", ".join(once)
    text += ".\nNoise: other processes used %s cores (%s–%s) during a run, load average %s–%s." % (
        number(figures.percentile(others, 50)),
        number(min(others)),
        number(max(others)),
        number(min(load)),
        number(max(load)),
    )
    if machine["real_time"]:
        text += " The engine ran at SCHED_FIFO, each client in a session of nice -18;"
    else:
        text += " Engine and clients ran at common priority;"
    return text + " the engine took at most %d%% of its core in any run." % round(100 * busiest)


def cost(data):
    head = ["client", "version", "one write, µs/event", "10 ms apart, µs/event", "closed loop, req/s", "fixed, CPU s"]
    head += ["start to first, s", "last to exit, s", "peak MiB", "processes"]
    rows = []
    for name in data.names():
        event, fixed = data.per_event(name)
        rows.append(
            [
                data.clients[name]["title"],
                data.clients[name]["version"],
                shown(event, US),
                shown(data.paced_per_event(name), US),
                shown(data.each(name, "large", lambda r: r["achieved"])),
                shown(fixed),
                shown(data.each(name, "large", lambda r: r["start_to_first_s"])),
                shown(data.each(name, "large", lambda r: r["last_to_exit_s"])),
                shown(data.each(name, "large", lambda r: r["peak_pss_bytes"] / MIB)),
                str(max((r["peak_processes"] for r in data.of(name, "large")), default=NONE)),
            ]
        )
    if data.floor() is not None:
        closed = shown(data.each("wrk", "streams", lambda r: r["achieved"]))
        rows.append(["wrk (floor)", data.clients["wrk"]["version"], shown(data.floor(), US), NONE, closed] + [NONE] * 5)
    text = grid(head, rows)
    sizes = ["%s %s" % (data.clients[n]["title"], number(data.of(n, "large")[0]["requests"])) for n in data.names() if data.of(n, "large")]
    text += "\n\nStart, end and memory are of the closed loop: %s requests." % ", ".join(sizes)
    paced = ["%s %g" % (data.clients[n]["title"], data.of(n, "paced-large")[0]["rate"]) for n in data.names() if data.of(n, "paced-large")]
    text += "\nEvents 10 ms apart at, requests/s: %s." % ", ".join(paced)
    if parts := split(data):
        text += "\nOf Plimsoll's CPU for an event, %s." % parts
    pages = data.each("wrk", "page", lambda r: r["achieved"])
    if pages is not None:
        text += "\nwrk without a stream, `GET /health`: %s requests/s." % shown(pages)
    return text


def split(data):
    """How Plimsoll's cost for an event divides between its two programs; the agent's as far as it was seen, the rest is the
    coordinator's."""
    parts = []
    for small, large, word in (("small", "large", "in one write"), ("paced-small", "paced-large", "10 ms apart")):
        agent = data.costs("plimsoll", small, large, lambda r: r["cpu_by_program"].get("agent", 0.0))
        both = data.costs("plimsoll", small, large)
        if agent:
            ours = [US * c.marginal / EVENTS for c in agent]
            rest = [US * c.marginal / EVENTS - mine for c, mine in zip(both, ours)]
            parts.append("the agent takes %s and the coordinator %s µs %s" % (shown(figures.spread(ours)), shown(figures.spread(rest)), word))
    return ", ".join(parts)


def schedule(data):
    head = ["client", "run", "offered/s", "achieved/s", "off schedule p50, ms", "p99, ms", "drift, ms", "TTFT added p50, ms", "p99, ms"]
    rows = []
    for name in data.names():
        constant = data.clients[name]["constant"]
        for kind in ("steady", "fast", "half"):
            found = data.of(name, kind)
            if not found:
                continue
            off = [data.each(name, kind, lambda r, p=p: r["deviation"][p]) for p in ("p50", "p99", "drift")] if constant else [None] * 3
            rows.append(
                [data.clients[name]["title"], kind, rates(found), shown(data.each(name, kind, lambda r: r["achieved"]))]
                + [shown(x, MS) for x in off]
                + [shown(data.each(name, kind, lambda r, n=n: r["added_ttft"][n]), MS) for n in (0, 1)]
            )
    text = grid(head, rows)
    notes = ["%s %s" % (about["title"], about["note"]) for name, about in data.clients.items() if about["note"] and name != "plimsoll"]
    return text + ("\n\n" + "; ".join(notes) + "." if notes else "")


def rates(rows):
    found = sorted({r["rate"] for r in rows})
    return "%g" % found[0] if len(found) == 1 else "%g–%g" % (found[0], found[-1])


def commands(data):
    lines = []
    for name in [*data.names(), "wrk"]:
        found = data.of(name, "steady") or data.of(name, "streams")
        if found:
            lines.append(found[0]["command"])
    return "```\n%s\n```" % "\n".join(lines)


def problems(data):
    found = [r for r in data.rows if r["problem"]]
    if not found:
        return None
    return "\n".join("- %s, %s: %s" % (data.clients[r["client"]]["title"], r["kind"], r["problem"]) for r in found)


# ---------------------------------------------------------------------------------------------------
# What was asked for
# ---------------------------------------------------------------------------------------------------

PYTHON = ("sglang-python", "vllm", "aiperf", "guidellm", "inference-perf")


def median(found):
    return None if found is None else found.median


def best(data, names, value):
    """The client with the least of a value, and that value; None where none has one."""
    found = [(value(name), name) for name in names if name in data.clients]
    return min(((v, n) for v, n in found if v is not None), default=None)


def done_when(data):
    rows = []

    def row(what, target, measured, met):
        rows.append([what, target, measured, NONE if met is None else "yes" if met else "**no**"])

    def ratio(what, target, theirs, ours, limit, name=None, unit=""):
        """Theirs over ours, which has to be at least the limit."""
        if theirs is None or ours is None or not ours:
            row(what, target, NONE, None)
            return
        beside = "%s: %s against %s%s" % (data.clients[name]["title"], number(theirs), number(ours), unit) if name else ""
        row(what, target, "%s× (%s)" % (number(theirs / ours), beside), theirs / ours >= limit)

    mine = median(data.per_event("plimsoll")[0])
    mine = None if mine is None else mine * US
    cheap = best(data, PYTHON, lambda n: median(data.per_event(n)[0]))
    theirs, name = (cheap[0] * US, cheap[1]) if cheap else (None, None)
    ratio("CPU an event, one write: the cheapest Python client over Plimsoll", "≥ 10×", theirs, mine, 10, name, " µs")
    rust = median(data.per_event("sglang-rust")[0]) if "sglang-rust" in data.clients else None
    ratio("the same: SGLang's Rust client", "≥ 2.5×", None if rust is None else rust * US, mine, 2.5, "sglang-rust", " µs")
    paced = [median(data.paced_per_event(n)) if n in data.clients else None for n in ("sglang-rust", "plimsoll")]
    paced = [None if x is None else x * US for x in paced]
    ratio("CPU an event, 10 ms apart: SGLang's Rust client", "≥ 1×", *paced, 1, "sglang-rust", " µs")
    closed = [median(data.each(n, "large", lambda r: r["achieved"])) for n in ("plimsoll", "sglang-rust")]
    if None not in closed:
        text = "%s× (%s against %s/s)" % (number(closed[0] / closed[1]), number(closed[0]), number(closed[1]))
        row("closed loop of 64: Plimsoll over SGLang's Rust client", "≥ 2.5×", text, closed[0] / closed[1] >= 2.5)
    else:
        row("closed loop of 64: Plimsoll over SGLang's Rust client", "≥ 2.5×", NONE, None)

    def off(name, kind, p):
        rows = data.of(name, kind)
        if not data.clients[name]["constant"] or not rows or (name != "plimsoll" and rows[0]["rate"] != data.of("plimsoll", kind)[0]["rate"]):
            return None
        return median(data.each(name, kind, lambda r: r["deviation"][p]))

    others = [n for n in data.names() if n != "plimsoll"]
    has = bool(data.of("plimsoll", "steady"))
    for p in ("p50", "p99"):
        near = best(data, others, lambda n, p=p: off(n, "steady", p)) if has else None
        theirs, name = (near[0] * MS, near[1]) if near else (None, None)
        ours = off("plimsoll", "steady", p) if has else None
        ratio("off schedule at 200/s, %s: the nearest other" % p, "≥ 10×", theirs, None if ours is None else ours * MS, 10, name, " ms")
    fast = data.of("plimsoll", "fast")
    if fast:
        achieved = median(data.each("plimsoll", "fast", lambda r: r["achieved"]))
        p99, drift = (median(data.each("plimsoll", "fast", lambda r, p=p: r["deviation"][p])) * MS for p in ("p99", "drift"))
        # A gap is 0.5 ms: more than that late at the end, and it has fallen behind.
        on = abs(achieved / 2000 - 1) <= 0.002 and abs(drift) <= 0.5
        row("on schedule at 2,000/s", "yes", "%s/s, drift %s ms, p99 %s ms" % (number(achieved), number(drift), number(p99)), on)
    else:
        row("on schedule at 2,000/s", "yes", NONE, None)
    added = median(data.each("plimsoll", "half", lambda r: r["added_ttft"][0]))
    at = rates(data.of("plimsoll", "half")) if data.of("plimsoll", "half") else NONE
    measured = NONE if added is None else "%s ms (at %s/s)" % (number(added * MS), at)
    row("TTFT added at half the closed loop's rate, p50", "≤ 0.1 ms", measured, None if added is None else added * MS <= 0.1)
    ten = [r for r in data.of("plimsoll", "large") if r["requests"] >= 10000]
    end = figures.spread([r["last_to_exit_s"] for r in ten])
    row("last response to exit, 10,000 requests", "≤ 1 s", NONE if end is None else shown(end) + " s", None if end is None else end.median <= 1)
    start = data.each("plimsoll", "large", lambda r: r["start_to_first_s"])
    row("start to first request", "≤ 1 s", NONE if start is None else shown(start) + " s", None if start is None else start.median <= 1)
    return grid(["what", "asked for", "measured", "met"], rows).replace("| --- | ---: | ---: | ---: |", "| --- | --- | --- | --- |")
