"""`vllm bench serve`."""

import json
import os

from clients import INSTALLED, MODEL, OUTPUT_TOKENS, PROMPT_TOKENS, TOKENIZER, TRIMMED, Client, Command, Reported
from clients import environment, version_installed


def read_results(text):
    found = json.loads(text)
    return Reported(
        requests=found["completed"],
        failed=found["failed"],
        ttft_p50=found["median_ttft_ms"] / 1000,
        ttft_p99=found["p99_ttft_ms"] / 1000,
    )


class Vllm(Client):
    name = "vllm"
    title = "vllm bench"

    def version(self):
        return version_installed("vllm") if version_installed("tokenizer") else None

    def command(self, job):
        load = ["--request-rate", "inf", "--max-concurrency", str(job.concurrency)]
        if job.rate is not None:
            load = ["--request-rate", "%g" % job.rate, "--burstiness", "inf"]
        arguments = [os.path.join(INSTALLED, "clients/bin/python"), TRIMMED, "vllm.benchmarks.serve"]
        arguments += ["--backend", "openai", "--base-url", job.url, "--endpoint", "/v1/completions", "--model", MODEL]
        arguments += ["--tokenizer", TOKENIZER, "--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS)]
        arguments += ["--random-output-len", str(OUTPUT_TOKENS), "--num-prompts", str(job.requests), *load]
        arguments += ["--ignore-eos", "--disable-tqdm", "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result"]
        arguments += ["--result-dir", job.folder, "--result-filename", "results.json"]
        folder = os.path.join(INSTALLED, "trimmed", "vllm-" + self.version())
        return Command(arguments, environment(PYTHONPATH=folder), job.folder)

    def read(self, job):
        with open(job.file("results.json")) as file:
            return read_results(file.read())
