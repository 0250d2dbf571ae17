#!/usr/bin/env python3
"""Runs a benchmark client out of a serving engine's wheel, without the engine.

    trimmed.py MODULE [ARGUMENT...]      with the folder of `setup.sh` on PYTHONPATH

`vllm bench serve` and SGLang's clients come only with their engines, which want torch and CUDA. Of the wheels only the
benchmark code is kept, byte for byte; whatever else of the two packages it imports is stood in for here: a few small
functions that it calls, and for the rest names that can be imported and never matter, since nothing asks for images,
adapters or an engine in the process. So a client starts a little faster here than where its engine is installed.
"""

import argparse
import importlib
import importlib.abc
import importlib.machinery
import logging
import os
import runpy
import sys
import types

# `datasets` reads data from a hub; nothing here does.
PACKAGES = ("vllm", "sglang", "datasets")


class Nothing:
    """Whatever is imported and not used: a base class, an annotation, a function that nobody calls."""

    def __init__(self, *_args, **_kwargs):
        pass

    def __class_getitem__(cls, _item):
        return cls


class Placeholder(types.ModuleType):
    """vLLM's stand-in for a package that is not installed."""

    def placeholder_attr(self, _name):
        return Nothing


def tokenizer(name, *_args, **_kwargs):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)


# What the clients do use.
STANDINS = {
    "vllm.utils.argparse_utils": {"FlexibleArgumentParser": argparse.ArgumentParser},
    "vllm.utils.import_utils": {"PlaceholderModule": Placeholder},
    "vllm.utils.gc_utils": {"freeze_gc_heap": lambda: None},
    "vllm.utils.network_utils": {"join_host_port": lambda host, port: "%s:%s" % (host, port)},
    "vllm.utils.mistral": {"is_mistral_tokenizer": lambda _tokenizer: False},
    "vllm.tokenizers": {"get_tokenizer": tokenizer, "TokenizerLike": Nothing},
    "vllm.logger": {"init_logger": logging.getLogger},
    "sglang.srt.disaggregation.utils": {"FAKE_BOOTSTRAP_HOST": ""},
    "sglang.srt.utils.network": {
        "resolve_base_url": lambda url, _host, _port: url,
        "resolve_host_port": lambda url, _host, _port: url,
    },
    # SGLang's own loader would look whether there is a newer source to compile.
    "sglang.srt.rust_extensions": {"load_rust_extension": importlib.import_module},
}


class Standins(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes modules: those of STANDINS before anybody else does, or whatever nobody else has of PACKAGES."""

    def __init__(self, named):
        self.named = named

    def find_spec(self, name, _path=None, _target=None):
        if name in STANDINS if self.named else name.split(".")[0] in PACKAGES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def exec_module(self, module):
        name = module.__name__
        module.__path__ = [path for path in (os.path.join(p, *name.split(".")) for p in sys.path) if os.path.isdir(path)]
        if self.named:
            module.__dict__.update(STANDINS[name])
        else:
            module.__getattr__ = nothing_called


def nothing_called(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Nothing


def constant_gaps():
    """SGLang's Python client draws exponential gaps and has no other: with this they are all the mean."""
    import numpy

    numpy.random.exponential = lambda scale=1.0, size=None: scale


def vllm_serve():
    """`vllm bench serve` without the command in front of it."""
    from vllm.benchmarks import serve

    options = argparse.ArgumentParser()
    serve.add_cli_args(options)
    serve.main(options.parse_args())


def main():
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    del sys.path[0]  # this folder: its modules have common names
    sys.meta_path.insert(0, Standins(named=True))
    sys.meta_path.append(Standins(named=False))
    if os.environ.get("CONSTANT_GAPS") == "1":
        constant_gaps()
    if module == "vllm.benchmarks.serve":
        vllm_serve()
    else:
        runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main()
