"""The null engine that every client is measured against: `agent null-engine`, on a core of its own.

It runs in real time where that is allowed, so that it is never what is measured, and remembers each request's instants.
"""

import http.client
import json
import os
import re
import select
import signal
import subprocess
import time
from typing import NamedTuple

import process

START_SECONDS = 20


class Arrival(NamedTuple):
    """One request, by CLOCK_MONOTONIC: read whole; first and last content event handed to the kernel."""

    read_ns: int
    first_ns: int
    last_ns: int


def read_arrivals(text):
    """The engine's own record: a line of JSON for each answer; those that arrived first come first."""
    found = []
    for line in text.splitlines():
        if line.strip():
            one = json.loads(line)
            found.append(Arrival(one["read_ns"], one["first_ns"], one["last_ns"]))
    return sorted(found)


class Engine:
    """A running null engine; a context manager, which ends it."""

    def __init__(self, agent, core, events=128, ttft_ms=0.0, interval_ms=0.0, log=os.devnull):
        self.command = [
            agent,
            "null-engine",
            "--listen",
            "127.0.0.1:0",
            "--events",
            str(events),
            "--ttft-ms",
            str(ttft_ms),
            "--interval-ms",
            str(interval_ms),
        ]
        self.core = core
        self.log = log
        self.process = None
        self.url = None

    def __enter__(self):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                preexec_fn=process.isolate(self.core, real_time=True),
            )
        try:
            self.url = self.wait_for_url()
        except BaseException:
            self.end()
            raise
        return self

    def wait_for_url(self):
        deadline = time.monotonic() + START_SECONDS
        said = b""
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.process.stdout], [], [], left)[0]:
                part = os.read(self.process.stdout.fileno(), 4096)
                said += part
                if match := re.search(rb"null engine on (http://\S+)\n", said):
                    return match[1].decode()
                if not part:
                    break
        raise RuntimeError("the null engine did not say where it listens; see %s" % self.log)

    def __exit__(self, *_):
        self.end()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()

    def cpu_seconds(self):
        seen = process.cpu_of(self.process.pid)
        return seen[1] if seen else 0.0

    def arrivals(self):
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        try:
            connection.request("GET", "/arrivals")
            response = connection.getresponse()
            text = response.read().decode()
            if response.status != 200:
                raise RuntimeError("the null engine answered %d: %s" % (response.status, text[:200]))
        finally:
            connection.close()
        return read_arrivals(text)
