"""Which runs make up the comparison: how many requests, at which rate, against which engine. Pure.

A client's runs in one turn:

  small, large              a closed loop of 64, as fast as it goes; events of a response in one write
  paced-small, paced-large  events 10 ms apart, each its own write, at a constant rate
  steady                    a constant rate that it can carry: is it on schedule, what does it add to the TTFT
  fast                      2,000 requests a second, for those that come near
  half                      at half of its own closed loop's rate

Two sizes, because a run's start and report cost, too: the difference is what a request costs.
"""

from typing import NamedTuple, Optional

CONCURRENCY = 64
TTFT_MS = 20
GAP_MS = 10

# Not 200 and 50: the engine's gaps are 10 ms, and requests whole multiples of that apart would stream in step.
PACED_RATE = 197
PACED_RATE_SLOW = 47
STEADY_RATE = 200
STEADY_RATE_SLOW = 50
FAST_RATE = 2000

# A rate is tried where the closed loop was this much of it: beyond, a client only falls behind, for as long as it takes.
WORTH_TRYING = 0.8
# What a client carries it does not only just carry.
CARRIES = 1.25


class Run(NamedTuple):
    """One run of one client."""

    kind: str
    requests: int
    rate: Optional[float]  # None: a closed loop
    ttft_ms: int
    gap_ms: int


class Sizes(NamedTuple):
    """Requests in a closed loop; seconds of schedule elsewhere."""

    small: int
    large: int
    paced: float
    steady: float
    fast: float


FAST = Sizes(small=1000, large=10000, paced=5, steady=5, fast=3)
PYTHON = Sizes(small=200, large=2000, paced=5, steady=5, fast=3)
SLOW = Sizes(small=64, large=600, paced=6, steady=6, fast=3)
QUICK = Sizes(small=500, large=3000, paced=2, steady=2, fast=2)
QUICK_PYTHON = Sizes(small=100, large=600, paced=2, steady=2, fast=2)

# Those that are not Python throughout.
NATIVE = ("plimsoll", "sglang-rust")


def sizes(name, slow, quick):
    if slow:
        return SLOW
    if name in NATIVE:
        return QUICK if quick else FAST
    return QUICK_PYTHON if quick else PYTHON


def closed(kind, requests):
    return Run(kind, requests, None, 0, 0)


def first_runs(of, slow):
    """What is run whatever comes out."""
    runs = [closed("small", of.small), closed("large", of.large)]
    rate = PACED_RATE_SLOW if slow else PACED_RATE
    if not slow:
        runs.append(Run("paced-small", rate, rate, TTFT_MS, GAP_MS))
    runs.append(Run("paced-large", round(rate * of.paced), rate, TTFT_MS, GAP_MS))
    return runs


def further_runs(of, slow, ceiling, briefly=False):
    """What depends on the closed loop's rate."""
    rate = STEADY_RATE if ceiling >= STEADY_RATE * CARRIES else STEADY_RATE_SLOW
    runs = [Run("steady", round(rate * of.steady), rate, TTFT_MS, 0)]
    if briefly:
        return runs
    if ceiling >= FAST_RATE * WORTH_TRYING:
        runs.append(Run("fast", round(FAST_RATE * of.fast), FAST_RATE, TTFT_MS, 0))
    if not slow:
        half = max(1, round(ceiling / 2))
        runs.append(Run("half", round(half * of.fast), half, TTFT_MS, 0))
    return runs
