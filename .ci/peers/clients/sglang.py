"""SGLang's two clients: the one in Python, and the one in Rust behind a small module in Python."""

import json
import os

from clients import INSTALLED, MODEL, OUTPUT_TOKENS, PROMPT_TOKENS, TOKENIZER, TRIMMED, Client, Command, Reported
from clients import environment, version_installed


def read_results(text):
    """The last line of what both append to their output file."""
    found = json.loads(text.strip().splitlines()[-1])
    return Reported(
        requests=found["completed"],
        failed=found.get("failed", 0),
        ttft_p50=found["median_ttft_ms"] / 1000,
        ttft_p99=found["p99_ttft_ms"] / 1000,
    )


class Sglang(Client):
    module = ""

    def version(self):
        return version_installed("sglang") if version_installed("tokenizer") else None

    def command(self, job):
        load = ["--request-rate", "inf", "--max-concurrency", str(job.concurrency)]
        if job.rate is not None:
            load = ["--request-rate", "%g" % job.rate]
        arguments = [os.path.join(INSTALLED, "clients/bin/python"), TRIMMED, self.module, "--backend", "vllm"]
        arguments += ["--base-url", job.url, "--model", MODEL, "--tokenizer", TOKENIZER, "--dataset-name", "random-ids"]
        arguments += ["--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(OUTPUT_TOKENS)]
        arguments += ["--random-range-ratio", "1", "--num-prompts", str(job.requests), *load, "--disable-tqdm"]
        arguments += ["--output-file", job.file("results.jsonl")]
        folder = os.path.join(INSTALLED, "trimmed", "sglang-" + self.version())
        return Command(arguments, environment(PYTHONPATH=folder, CONSTANT_GAPS="1"), job.folder)

    def read(self, job):
        with open(job.file("results.jsonl")) as file:
            return read_results(file.read())


class Rust(Sglang):
    name = "sglang-rust"
    title = "SGLang, Rust"
    module = "sglang.benchmark.rust_client"
    constant = False
    note = "has Poisson arrivals only, and does not record when it meant to send"


class Python(Sglang):
    name = "sglang-python"
    title = "SGLang, Python"
    module = "sglang.benchmark.serving"
    note = "has Poisson arrivals only: `numpy.random.exponential` returns its mean here"
