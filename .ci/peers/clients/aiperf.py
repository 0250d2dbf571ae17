"""AIPerf."""

import json
import os

from clients import INSTALLED, MODEL, OUTPUT_TOKENS, PROMPT_TOKENS, TOKENIZER, Client, Command, Reported


def read_results(text):
    found = json.loads(text)
    ttft = found["time_to_first_token"]
    failed = found.get("error_request_count", {}).get("avg", 0)
    return Reported(int(found["request_count"]["avg"]), int(failed), ttft["p50"] / 1000, ttft["p99"] / 1000)


class Aiperf(Client):
    name = "aiperf"
    title = "AIPerf"
    slow = True

    def command(self, job):
        load = ["--concurrency", str(job.concurrency)]
        if job.rate is not None:
            load = ["--request-rate", "%g" % job.rate, "--arrival-pattern", "constant"]
        arguments = [os.path.join(INSTALLED, "aiperf/bin/aiperf"), "profile", "-m", MODEL, "--tokenizer", TOKENIZER]
        arguments += ["--url", job.url, "--endpoint-type", "completions", "--streaming", "--use-legacy-max-tokens", *load]
        arguments += ["--request-count", str(job.requests), "--isl", str(PROMPT_TOKENS), "--isl-stddev", "0"]
        arguments += ["--osl", str(OUTPUT_TOKENS), "--osl-stddev", "0", "--random-seed", "1", "--ui", "none"]
        arguments += ["--no-gpu-telemetry", "--no-server-metrics", "--artifact-dir", job.file("artifacts")]
        # It takes a tokenizer's folder for a name on the hub when it is told to stay offline.
        return Command(arguments, {**os.environ, "TOKENIZERS_PARALLELISM": "false"}, job.folder)

    def read(self, job):
        with open(job.file("artifacts/profile_export_aiperf.json")) as file:
            return read_results(file.read())
