"""GuideLLM."""

import json
import os

from clients import INSTALLED, MODEL, OUTPUT_TOKENS, PROMPT_TOKENS, TOKENIZER, Client, Command, Reported, environment


def read_results(text):
    (found,) = json.loads(text)["benchmarks"]
    totals = found["metrics"]["request_totals"]
    ttft = found["metrics"]["time_to_first_token_ms"]["successful"]["percentiles"]
    return Reported(
        requests=totals["successful"],
        failed=totals["errored"] + totals["incomplete"],
        ttft_p50=ttft["p50"] / 1000,
        ttft_p99=ttft["p99"] / 1000,
    )


class Guidellm(Client):
    name = "guidellm"
    title = "GuideLLM"
    slow = True
    note = "a stand-in for the class of PyTorch that it hands prompts on with"

    def command(self, job):
        load = "kind=concurrent,streams=%s" % job.concurrency
        if job.rate is not None:
            load = "kind=constant,rate=%g" % job.rate
        arguments = [os.path.join(INSTALLED, "guidellm/bin/guidellm"), "run", "--backend"]
        arguments += ["kind=openai_http,target=%s,model=%s,request_format=/v1/completions" % (job.url, MODEL)]
        arguments += ["--profile", load, "--constraint", "kind=max_requests,count=%d" % job.requests]
        arguments += ["--tokenizer", "kind=huggingface_auto,model=" + TOKENIZER, "--data"]
        arguments += ["kind=synthetic_text,prompt_tokens=%d,output_tokens=%d" % (PROMPT_TOKENS, OUTPUT_TOKENS)]
        arguments += ["--output", "kind=json,path=" + job.file("results.json"), "--output", "kind=console"]
        arguments += ["--disable-console-interactive"]
        return Command(arguments, environment(USE_TORCH="0"), job.folder)

    def read(self, job):
        with open(job.file("results.json")) as file:
            return read_results(file.read())
