"""Medians, spreads and means. Standard library only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """What some rounds gave."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        return f"{figures(self.middle)} ({figures(self.low)} to {figures(self.high)})"


def spread(values: Sequence[float]) -> Spread:
    """The smallest, the median and the largest of at least one value."""
    return Spread(min(values), statistics.median(values), max(values))


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ratios of what was measured side by side: round by round, so that what slows a whole round cancels."""
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} rounds against {len(theirs)}")
    return spread([a / b for a, b in zip(ours, theirs, strict=True)])


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median ratio: round by round where both were measured in the same rounds."""
    if len(ours) == len(theirs):
        return ratios(ours, theirs).middle
    return statistics.median(ours) / statistics.median(theirs)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def figures(value: float) -> str:
    """Three figures, without an exponent."""
    if value == 0 or not math.isfinite(value):
        return str(value)
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"
