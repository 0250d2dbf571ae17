"""wrk as the floor of plain HTTP: it reads responses to their end and looks at nothing in them."""

import os
import re
import shutil
import subprocess

import clients
import plan
import process
from engine import Engine

SECONDS = 2

SCRIPT = """wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"model":"%s","prompt":"a b c","max_tokens":%d,"stream":true}'
""" % (clients.MODEL, clients.OUTPUT_TOKENS)


def version():
    if not shutil.which("wrk"):
        return None
    said = subprocess.run(["wrk", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"wrk (?:debian/)?(\S+)", said)
    return found[1] if found else "?"


def read_requests(text):
    """How many requests it says it made, and a second."""
    return int(re.search(r"(\d+) requests in", text)[1]), float(re.search(r"Requests/sec:\s*([\d.]+)", text)[1])


def runs(agent, engine_core, client_core):
    """One run of a page without content, and one of streamed responses in one write: rows of the results."""
    for kind, path in (("page", "/health"), ("streams", "/v1/completions")):
        folder = os.path.join(clients.INSTALLED, "runs", "wrk", kind)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        script = os.path.join(folder, "post.lua")
        with open(script, "w") as file:
            file.write(SCRIPT)
        log = os.path.join(folder, "output.log")
        with Engine(agent, engine_core, clients.OUTPUT_TOKENS, log=os.path.join(folder, "engine.log")) as engine:
            command = ["wrk", "-t1", "-c%d" % plan.CONCURRENCY, "-d%d" % SECONDS]
            command += (["-s", script] if kind == "streams" else []) + [engine.url + path]
            finished = process.run(command, client_core, 30, log, keep={engine.process.pid}, not_others=engine.cpu_seconds)
            engine_cpu = engine.cpu_seconds()
        with open(log) as file:
            requests, rate = read_requests(file.read())
        row = {"client": "wrk", "kind": kind, "requests": requests, "rate": None, "achieved": rate, "problem": None}
        yield row | finished._asdict() | {"engine_cpu_seconds": engine_cpu, "command": "wrk -t1 -c64 -d2 URL" + path}
