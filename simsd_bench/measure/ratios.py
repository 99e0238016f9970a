"""Medians with quartiles, and ratios of medians, as columns of a row."""

import statistics
from collections.abc import Sequence


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return NAME, the median, and NAME_low and NAME_high, the quartiles."""
    low, middle, high = values[0], values[0], values[0]
    if len(values) > 1:
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {name: middle, f"{name}_low": low, f"{name}_high": high}


def ratio(name: str, values: Sequence[float], others: Sequence[float]) -> dict[str, float]:
    """Return NAME, the median of `values` over that of `others`, and the quartiles of the ratios pair by pair."""
    pairs = [value / other for value, other in zip(values, others, strict=True)]
    return spread(name, pairs) | {name: statistics.median(values) / statistics.median(others)}
