"""The part of PyTorch that GuideLLM uses to walk over its prompts; copied to `torch/__init__.py` in its environment.

GuideLLM needs PyTorch, 6 GB with CUDA's libraries, for one class: a loader that hands on what another iterator yields.
Requests, streams and numbers never touch it. What is left out here makes GuideLLM lighter than its users have it.
"""

import sys
from typing import Generic, TypeVar

T = TypeVar("T")

# One file is every module that is imported from.
for _name in ("torch.utils", "torch.utils.data", "torch.utils.data.dataloader", "torch.utils.data.dataset"):
    sys.modules[_name] = sys.modules[__name__]
utils = data = sys.modules[__name__]


class Generator:
    def manual_seed(self, _seed):
        return self


class IterableDataset(Generic[T]):
    pass


class DataLoader(Generic[T]):
    def __init__(self, dataset, collate_fn, **_options):
        self.dataset = dataset
        self.collate_fn = collate_fn

    def __iter__(self):
        for item in self.dataset:
            yield self.collate_fn([item])


def get_worker_info():
    return None
