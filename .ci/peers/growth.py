#!/usr/bin/env python3
"""Whether Plimsoll's cost for a request and its memory grow with the length of a run: growth.py [--write] [REQUESTS...]

A closed loop of 64 with 10,000, 100,000 and 1,000,000 requests, on one core, as in `bench.py`; some 5 minutes.
"""

import argparse
import os
import sys

import bench
import plan
import process
import table
from clients import plimsoll

BEGIN = "<!-- growth.py --write writes from here -->"
END = "<!-- growth.py: to here -->"

LENGTHS = (10_000, 100_000, 1_000_000)
# A long run is ended when it takes this long for each request, and what a short one may.
SECONDS_A_REQUEST = 0.002


def render(rows):
    """A line a length, each beside the shortest."""
    head = ["requests", "req/s", "CPU a request, µs", "over the shortest", "agent, peak MiB", "coordinator, peak MiB", "last to exit, s"]
    lines = []
    for row in rows:
        cost = row["cpu_seconds"] / row["requests"]
        first = rows[0]["cpu_seconds"] / rows[0]["requests"]
        sizes = [row["peak_pss_by_program"].get(name, 0) / table.MIB for name in ("agent", "coordinator")]
        exit_s = row.get("last_to_exit_s")
        lines.append(
            ["{:,}".format(row["requests"]), table.number(row.get("achieved")), table.number(cost * table.US), table.number(cost / first)]
            + [table.number(size) for size in sizes]
            + [table.number(exit_s) if not row["problem"] else row["problem"]]
        )
    return table.grid(head, lines)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("requests", nargs="*", type=int, default=LENGTHS)
    options.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = options.parse_args()
    process.adopt_orphans()
    os.sched_setaffinity(0, {bench.ENGINE_CORE})
    client = plimsoll.Plimsoll()
    if client.version() is None:
        raise SystemExit("growth: build it first: cargo build --release -p coordinator -p agent")
    rows = []
    for requests in sorted(options.requests):
        limit = bench.LIMIT_SECONDS + requests * SECONDS_A_REQUEST
        rows.append(bench.measure(client, plan.closed("growth", requests), os.environ.get("PEERS_ENGINE") or plimsoll.AGENT, limit))
        bench.say(bench.told(rows[-1], client.constant))
    text = render(rows)
    bench.say("\n" + text)
    if options.write:
        table.write(bench.PAGE, text, BEGIN, END)
    return 1 if any(row["problem"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
