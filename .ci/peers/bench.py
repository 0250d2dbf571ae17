#!/usr/bin/env python3
"""Measures Plimsoll beside other clients, all against the same null engine: bench.py [--only A,B] [--quick] [--write]

The engine has core 0, whichever client is measured core 1. Clients take turns; each turn is the runs of `plan.py`.
What was measured goes to .bench-peers/results.json, the tables of `table.py` to the terminal and, with --write, into
docs/benchmarks.md. `setup.sh` installs the clients; those that are not there are left out. In the environment:

  PEERS_BIN         folder of Plimsoll's programs (the target folder's `release`)
  PEERS_ENGINE      another `agent` for the engine than the one that is measured
  PLIMSOLL_OPTIONS  more options for Plimsoll's command
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time

import clients
import figures
import plan
import process
import table
import wrk
from clients import plimsoll
from engine import Engine

ENGINE_CORE, CLIENT_CORE = 0, 1
LIMIT_SECONDS = 90
# What the engine remembers of: older ones go.
REMEMBERED = 1 << 18
RESULTS = os.path.join(clients.INSTALLED, "results.json")
PAGE = os.path.join(clients.TOP, "docs", "benchmarks.md")


def say(text):
    print(text, flush=True)


def empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def shown(arguments, job):
    """A command as a reader can repeat it."""
    text = " ".join(arguments)
    for path, name in (
        (job.folder, "DIR"),
        (job.url, "URL"),
        (clients.TOP + "/", ""),
        (plimsoll.PROGRAMS + "/", ""),
    ):
        text = text.replace(path, name)
    return text


def measure(client, run, agent, limit=LIMIT_SECONDS):
    """One run: a row of the results. What goes wrong is in it, under `problem`."""
    folder = empty(os.path.join(clients.INSTALLED, "runs", client.name, run.kind))
    with Engine(
        agent, ENGINE_CORE, clients.OUTPUT_TOKENS, run.ttft_ms, run.gap_ms, os.path.join(folder, "engine.log")
    ) as engine:
        concurrency = None if run.rate else plan.CONCURRENCY
        job = clients.Job(engine.url, run.requests, run.rate, concurrency, folder)
        command = client.command(job)
        finished = process.run(
            command.arguments,
            CLIENT_CORE,
            limit,
            os.path.join(folder, "output.log"),
            command.environment,
            command.folder,
            keep={engine.process.pid},
            not_others=engine.cpu_seconds,
        )
        row = {"client": client.name, "kind": run.kind, "requests": run.requests, "rate": run.rate}
        row |= finished._asdict()
        row |= {
            "engine_cpu_seconds": engine.cpu_seconds(),
            "command": shown(command.arguments, job),
            "problem": None,
        }
        try:
            # Requests for trying and warming up come before.
            arrivals = engine.arrivals()[-run.requests :]
        except (OSError, ValueError, RuntimeError) as error:
            return row | {"problem": "the engine's record: %s" % error}
    if finished.ended_for_taking_long:
        return row | {"problem": "ended after %d s" % limit}
    if finished.exit != 0:
        return row | {"problem": "exit %d: %s" % (finished.exit, last_line(os.path.join(folder, "output.log")))}
    if len(arrivals) < min(run.requests, REMEMBERED):
        return row | {"problem": "only %d of %d requests arrived" % (len(arrivals), run.requests)}
    row |= of_arrivals(run, arrivals, finished)
    try:
        reported = client.read(job)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return row | {"problem": "its results cannot be read: %r" % error}
    row |= {
        "reported": reported._asdict(),
        "added_ttft": figures.added_ttft((reported.ttft_p50, reported.ttft_p99), arrivals),
    }
    if client.name == "plimsoll":
        with open(job.file("out/report.json")) as file:
            row["verdict"] = plimsoll.read_verdict(file.read())
    if reported.failed:
        row["problem"] = "%d requests failed" % reported.failed
    shutil.rmtree(job.file("data"), ignore_errors=True)
    return row


def of_arrivals(run, arrivals, finished):
    """What the engine's own record says."""
    read = [a.read_ns for a in arrivals]
    last = max(a.last_ns for a in arrivals)
    found = {
        "start_to_first_s": (min(read) - finished.started_ns) / 1e9,
        "last_to_exit_s": (finished.ended_ns - last) / 1e9,
        "engine_ttft": [
            figures.percentile([(a.first_ns - a.read_ns) / 1e9 for a in arrivals], p) for p in (50, 99)
        ],
    }
    if run.rate is None:
        return found | {"achieved": len(arrivals) / ((last - min(read)) / 1e9)}
    return found | {"achieved": figures.rate_of(read), "deviation": figures.deviation(read, run.rate)._asdict()}


def last_line(path):
    with open(path, errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


def told(row, is_constant):
    """A line for whoever waits."""
    parts = ["%-14s %-11s" % (row["client"], row["kind"])]
    if row.get("achieved") is not None:
        parts.append("%8.1f/s" % row["achieved"] + (" of %g" % row["rate"] if row["rate"] else ""))
    parts.append("%6.2f CPU s" % row["cpu_seconds"])
    if "deviation" in row and is_constant:
        parts.append("off by %.3f / %.3f ms" % tuple(1e3 * row["deviation"][p] for p in ("p50", "p99")))
    if "added_ttft" in row:
        parts.append("TTFT %+.3f / %+.3f ms" % tuple(1e3 * x for x in row["added_ttft"]))
    parts.append("others %.1f cores, load %.1f" % (row["other_cores"], row["load"]))
    if row.get("verdict") and row["verdict"][0] != "valid":
        parts.append(
            "%s: %s" % (row["verdict"][0], "; ".join(reason.partition(" (")[0] for reason in row["verdict"][1]))
        )
    if row["problem"]:
        parts.append("PROBLEM: " + row["problem"])
    return "  ".join(parts)


def turn_of(client, quick, agent):
    """All runs of one client's turn, as they come."""
    of = plan.sizes(client.name, client.slow, quick)
    ceiling = None
    for run in plan.first_runs(of, client.slow):
        row = measure(client, run, agent)
        if run.kind == "large":
            ceiling = row.get("achieved")
        yield row
    briefly = quick and client.name != "plimsoll"
    for run in plan.further_runs(of, client.slow, ceiling, briefly) if ceiling else []:
        yield measure(client, run, agent)


def chosen(names, quick):
    """The clients to measure, and a line for each that is left out."""
    every = clients.every()
    if names:
        unknown = set(names) - {c.name for c in every}
        if unknown:
            raise SystemExit(
                "bench: there is no client %s; there are %s"
                % (", ".join(sorted(unknown)), ", ".join(c.name for c in every))
            )
        every = [c for c in every if c.name in names]
    elif quick:
        every = [c for c in every if c.name in ("plimsoll", "sglang-rust", "vllm")]
    for client in every:
        if client.version() is None:
            how = "make build-release" if client.name == "plimsoll" else "make peers-setup"
            say("%s is left out: it is not installed (%s)" % (client.title, how))
    return [c for c in every if c.version() is not None]


def machine():
    with open("/proc/cpuinfo") as file:
        model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "?")
    commit = subprocess.run(
        ["git", "-C", clients.TOP, "describe", "--always", "--dirty", "--exclude", "*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "cores": os.cpu_count(),
        "model": model,
        "kernel": os.uname().release,
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "real_time": process.IS_ROOT,
    }


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", help="names of clients, separated by commas")
    options.add_argument("--turns", type=int, help="(3; 1 with --quick); the slower clients have one in any case")
    options.add_argument(
        "--quick", action="store_true", help="fewer requests, one turn, and only the fastest peers"
    )
    options.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options.add_argument("--show", action="store_true", help="measure nothing: show the last results")
    options = options.parse_args()

    if not options.show:
        if len(os.sched_getaffinity(0)) < 2:
            raise SystemExit("bench: two cores are needed, one for the engine and one for the client")
        results = measured(options)
        with open(RESULTS, "w") as file:
            json.dump(results, file, indent=1)
    with open(RESULTS) as file:
        results = json.load(file)
    tables = table.render(results)
    say("\n" + tables)
    if options.write:
        table.write(PAGE, tables)
        say("written to docs/benchmarks.md")


def measured(options):
    process.adopt_orphans()
    os.sched_setaffinity(0, {ENGINE_CORE})
    os.makedirs(clients.INSTALLED, exist_ok=True)
    names = options.only.split(",") if options.only else []
    taking_part = chosen(names, options.quick)
    agent = os.environ.get("PEERS_ENGINE") or plimsoll.AGENT
    if not os.access(agent, os.X_OK):
        raise SystemExit(
            "bench: there is no %s; build it first: cargo build --release -p coordinator -p agent" % agent
        )
    started = time.monotonic()
    rows = []
    for turn in range(options.turns or (1 if options.quick else 3)):
        if wrk.version():
            for row in wrk.runs(agent, ENGINE_CORE, CLIENT_CORE):
                rows.append(row | {"turn": turn})
        for client in taking_part:
            if client.once and turn > 0:
                continue
            for row in turn_of(client, options.quick, agent):
                rows.append(row | {"turn": turn})
                say(told(row, client.constant))
    about = {
        c.name: {"title": c.title, "version": c.version(), "note": c.note, "constant": c.constant}
        for c in taking_part
    }
    about["wrk"] = {"title": "wrk", "version": wrk.version(), "note": "", "constant": False}
    return {"machine": machine(), "seconds": time.monotonic() - started, "clients": about, "rows": rows}


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
        sys.exit(0)
    sys.exit(130)
