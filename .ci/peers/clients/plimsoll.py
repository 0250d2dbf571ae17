"""Plimsoll, as its users run it: a coordinator, and the agent that it starts beside itself."""

import json
import os
import subprocess

from clients import MODEL, OUTPUT_TOKENS, PROMPT_TOKENS, TOP, Client, Command, Reported

PROGRAMS = os.environ.get("PEERS_BIN") or os.path.join(
    os.environ.get("CARGO_TARGET_DIR") or os.path.join(TOP, "target"), "release"
)
COORDINATOR = os.path.join(PROGRAMS, "coordinator")
AGENT = os.path.join(PROGRAMS, "agent")

ROWS = 64


def workload():
    """Prompts of about as many tokens as the other clients draw, no two the same."""
    for row in range(ROWS):
        words = " ".join("w%d" % (row * PROMPT_TOKENS + n) for n in range(PROMPT_TOKENS // 2))
        yield json.dumps({"prompt": words, "max_tokens": OUTPUT_TOKENS})


def read_report(text):
    """One trial's `report.json`."""
    (trial,) = json.loads(text)["trials"]
    summary = trial["summary"]
    ttft = summary["latency_seconds"]["ttft"]
    return Reported(summary["successful"], summary["failed"], ttft["p50"], ttft["p99"])


def read_verdict(text):
    """The trial's verdict and why, for whoever looks at a run that seems odd."""
    (trial,) = json.loads(text)["trials"]
    validity = trial["summary"]["validity"]
    return validity["verdict"], [reason["message"] for reason in validity["reasons"]]


class Plimsoll(Client):
    name = "plimsoll"
    title = "Plimsoll"
    note = "coordinator and one local agent, both on the client's core"

    def version(self):
        if not (os.access(COORDINATOR, os.X_OK) and os.access(AGENT, os.X_OK)):
            return None
        said = subprocess.run(
            [COORDINATOR, "--version"], capture_output=True, text=True, check=False
        ).stdout.split()
        return said[-1] if said else None

    def command(self, job):
        with open(job.file("workload.jsonl"), "w") as file:
            file.writelines(row + "\n" for row in workload())
        load = ["--arrival", "closed", "--concurrency", str(job.concurrency)]
        if job.rate is not None:
            load = ["--arrival", "constant", "--rate", "%g" % job.rate]
        arguments = [COORDINATOR, "run", *load, "--requests", str(job.requests)]
        arguments += [
            "--base-url",
            job.url,
            "--model",
            MODEL,
            "--workload",
            job.file("workload.jsonl"),
            "--ignore-eos",
        ]
        arguments += ["--data", job.file("data"), "--out", job.file("out")]
        arguments += os.environ.get("PLIMSOLL_OPTIONS", "").split()
        # Nothing is refused by what was found out about this host before.
        kept = {name: value for name, value in os.environ.items() if name != "PLIMSOLL_CALIBRATION"}
        return Command(arguments, kept, job.folder)

    def read(self, job):
        with open(job.file("out/report.json")) as file:
            return read_report(file.read())
