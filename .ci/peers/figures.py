"""What is computed from measurements. Pure: no clock, no files, no processes."""

import statistics
from typing import NamedTuple


def percentile(values, p):
    """Between the sorted values at rank p/100 (n - 1), as Plimsoll's reports have it."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    rank = (len(ordered) - 1) * p / 100
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


class Deviation(NamedTuple):
    """How far arrivals are from equal gaps, in seconds."""

    p50: float
    p99: float
    max: float
    # How much later the last twentieth was than the first: a client that falls behind, or that drifts.
    drift: float


def deviation(arrivals_ns, rate):
    """From the schedule of equal gaps that fits best: the one that leaves a median distance of 0."""
    gap = 1e9 / rate
    ordered = sorted(arrivals_ns)
    late = [at - ordered[0] - n * gap for n, at in enumerate(ordered)]
    middle = statistics.median(late)
    distances = [abs(x - middle) / 1e9 for x in late]
    part = max(1, len(late) // 20)
    drift = (statistics.fmean(late[-part:]) - statistics.fmean(late[:part])) / 1e9
    return Deviation(percentile(distances, 50), percentile(distances, 99), max(distances), drift)


def rate_of(arrivals_ns):
    """Arrivals a second between the first and the last; None where there is nothing between them."""
    span = max(arrivals_ns) - min(arrivals_ns)
    return (len(arrivals_ns) - 1) / (span / 1e9) if span else None


class Cost(NamedTuple):
    """What a run costs: `fixed` for start and report, and `marginal` for each request."""

    fixed: float
    marginal: float


def cost(small, large):
    """The line through two runs, each (requests, cost)."""
    (n, a), (m, b) = small, large
    if m <= n:
        raise ValueError("the large run is not larger")
    marginal = (b - a) / (m - n)
    return Cost(fixed=a - marginal * n, marginal=marginal)


class Spread(NamedTuple):
    """A figure of several turns."""

    median: float
    low: float
    high: float
    turns: int


def spread(values):
    """None where no turn has a value."""
    found = [v for v in values if v is not None]
    return Spread(statistics.median(found), min(found), max(found), len(found)) if found else None


def added_ttft(reported, arrivals):
    """What a client adds to the time to first token: its p50 and p99 minus the engine's own, in seconds.

    `reported` is (p50, p99) in seconds, `arrivals` the engine's record of the same requests.
    """
    true = [(a.first_ns - a.read_ns) / 1e9 for a in arrivals]
    return tuple(r - percentile(true, p) for r, p in zip(reported, (50, 99)))
