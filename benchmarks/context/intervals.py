"""Intervals of 95 % for what was counted and what was averaged.

A sample stands for one question of the script, or for one conversation, averaged over the seeds: further seeds make it
steadier, and never count as further samples, since they ask the same thing again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from random import Random
from statistics import fmean

from benchmarks.report import Spread

Z = 1.959964
RESAMPLES = 5_000


def wilson(shares: Sequence[float]) -> Spread:
    """The rate with Wilson's interval, all in percent. `shares`: for each question from 0 (never) to 1 (at every seed)."""
    count, rate = len(shares), fmean(shares)
    center = (rate + Z**2 / (2 * count)) / (1 + Z**2 / count)
    reach = Z / (1 + Z**2 / count) * sqrt(rate * (1 - rate) / count + Z**2 / (4 * count**2))
    return _spread(rate * 100, max(0, center - reach) * 100, min(1, center + reach) * 100)


def bootstrap(samples: Sequence[float]) -> Spread:
    """The mean with the percentile interval of a bootstrap, the same each time. Differences of pairs make it a paired one."""
    random = Random(0)
    means = sorted(fmean(random.choices(samples, k=len(samples))) for _ in range(RESAMPLES))
    tail = round(RESAMPLES * 0.025)
    return _spread(fmean(samples), means[tail], means[-tail - 1])


def _spread(value: float, low: float, high: float) -> Spread:
    """What stands at the edge of its interval must not fall out of it by a rounding."""
    return Spread(value, min(value, low), max(value, high))
