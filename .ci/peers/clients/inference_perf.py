"""inference-perf. Its configuration is a file of YAML, which JSON is, too."""

import json
import math
import os

from clients import INSTALLED, MODEL, OUTPUT_TOKENS, PROMPT_TOKENS, TOKENIZER, Client, Command, Reported, environment


def configuration(job):
    if job.rate is None:
        load = {"type": "concurrent", "stages": [{"num_requests": job.requests, "concurrency_level": job.concurrency}]}
    else:
        # It takes whole seconds.
        load = {"type": "constant", "stages": [{"rate": job.rate, "duration": math.ceil(job.requests / job.rate)}]}

    def exactly(n):
        return {"min": n, "max": n, "mean": n, "std_dev": 0, "total_count": 2 * job.requests + 100}

    return {
        "api": {"type": "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": MODEL, "base_url": job.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": TOKENIZER},
        "load": {**load, "num_workers": 1, "worker_max_concurrency": 1000},
        "data": {
            "type": "random",
            "input_distribution": exactly(PROMPT_TOKENS),
            "output_distribution": exactly(OUTPUT_TOKENS),
        },
        "report": {"request_lifecycle": {"summary": True, "per_stage": False, "per_request": False}},
        "storage": {"local_storage": {"path": job.file("results")}},
    }


def read_results(text):
    found = json.loads(text)
    ttft = found["successes"]["latency"]["time_to_first_token"]
    return Reported(found["successes"]["count"], found["failures"]["count"], ttft["median"], ttft["p99"])


class InferencePerf(Client):
    name = "inference-perf"
    title = "inference-perf"
    constant = False
    slow = True
    note = "its `constant` draws exponential gaps"

    def command(self, job):
        with open(job.file("config.yml"), "w") as file:
            json.dump(configuration(job), file)
        arguments = [os.path.join(INSTALLED, "inference-perf/bin/inference-perf"), "--config_file", job.file("config.yml")]
        return Command(arguments, environment(), job.folder)

    def read(self, job):
        with open(job.file("results/summary_lifecycle_metrics.json")) as file:
            return read_results(file.read())
