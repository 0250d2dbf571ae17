#!/usr/bin/env python3
"""Measures what a run takes around its load: from the start of `coordinator run` to the first request, and from the last
response to the finished report. One local agent, the simulated engine, 10,000 requests; the binaries are those of the
release profile. Prints a table and asserts nothing. `--turns N --requests N --rate R --bin FOLDER` change it.

All instants are of the system's monotonic clock: the run keeps the one of its start (run.json), traces say when each
request was written and ended since then, and this script when the program was started and had ended.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time


def engine(program, folder):
    """Starts the engine and gives it with its address."""
    line = [program, "--listen", "127.0.0.1:0", "--fixed-ttft-ms", "2"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=open(folder / "engine.log", "w"), text=True)
    for said in process.stdout:
        if "listening on " in said:
            return process, said.split("listening on ")[1].strip()
    raise SystemExit("the engine did not start")


def turn(program, url, options, folder):
    """One run: to its first request, from its last response to report.json, to the program's end; seconds."""
    line = [program, "run", "--data", folder, "--base-url", url, "--rate", str(options.rate)]
    line += ["--requests", str(options.requests), "--max-tokens", "4", "--late-budget", "1s"]
    begun = time.monotonic_ns()
    ran = subprocess.run(line, capture_output=True, text=True)
    ended = time.monotonic_ns()
    if ran.returncode != 0:
        raise SystemExit(f"coordinator run: exit code {ran.returncode}\n{ran.stderr}")
    # From the wall clock of the file to the monotonic one, here and now.
    wall = time.time_ns() - time.monotonic_ns()
    [run] = pathlib.Path(folder, "runs").iterdir()
    reported = (run / "report.json").stat().st_mtime_ns - wall
    start = json.loads((run / "run.json").read_text())["trials"][0]["start"]
    first, last = None, 0
    with open(run / "traces.jsonl") as traces:
        for text in traces:
            trace = json.loads(text)
            if trace["written_ns"] is not None:
                first = min(first or trace["written_ns"], trace["written_ns"])
            last = max(last, trace["finished_ns"])
    return (start + first - begun) / 1e9, (reported - start - last) / 1e9, (ended - start - last) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=2_000)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("target/release"))
    options = parser.parse_args()
    binaries = options.bin.resolve()
    with tempfile.TemporaryDirectory() as made:
        process, url = engine(binaries / "sim-engine", pathlib.Path(made))
        try:
            turns = [
                turn(binaries / "coordinator", url, options, str(pathlib.Path(made, f"turn-{number}")))
                for number in range(options.turns)
            ]
        finally:
            process.terminate()
            process.wait()
    print(f"around a run of {options.requests} requests at {options.rate:g}/s, {options.turns} turns; seconds")
    print("| from                                         | median |    min |    max |")
    print("| -------------------------------------------- | ------ | ------ | ------ |")
    names = ("start to first request", "last response to report.json", "last response to the program's end")
    for name, seconds in zip(names, zip(*turns)):
        print(f"| {name:44} | {statistics.median(seconds):6.3f} | {min(seconds):6.3f} | {max(seconds):6.3f} |")


if __name__ == "__main__":
    main()
