"""Sums over requests of what decoding cost and what speculation gained."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from simsd.messages.request import Stats

SUMMED = (
    "prompt_tokens",
    "completion_tokens",
    "rounds",
    "target_forwards",
    "draft_forwards",
    "drafted",
    "accepted",
    "recovered",
    "bonus",
    "fallback_tokens",
    "prefill_s",
    "decode_s",
)
BAR_WIDTH = 40


def total(all_stats: Iterable[Stats]) -> dict[str, Any]:
    """Return the sums over requests, and ratios of them (None where the divisor is 0).

    A forward or a round that several requests share counts for each of them, and so does its time. So `tokens_per_s` is
    the speed of one request, not of the machine.
    """
    found = list(all_stats)
    sums: dict[str, Any] = {name: sum(getattr(stats, name) for stats in found) for name in SUMMED}
    histogram: Counter[int] = Counter()
    for stats in found:
        histogram.update(stats.accept_histogram)
    return sums | {
        "acceptance": _ratio(sums["accepted"], sums["drafted"]),
        "tokens_per_target_forward": _ratio(sums["completion_tokens"], sums["target_forwards"]),
        "tokens_per_s": _ratio(sums["completion_tokens"], sums["decode_s"]),
        "accept_histogram": dict(sorted(histogram.items())),
    }


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None


def table(sums: dict[str, Any]) -> str:
    """Return the sums as a table of text, with the accept histogram as bars."""
    lines = [
        f"prompt tokens      {sums['prompt_tokens']}, prefill {sums['prefill_s']:.3f} s",
        f"completion tokens  {sums['completion_tokens']}, decode {sums['decode_s']:.3f} s"
        + _if(sums["tokens_per_s"], ", {:.1f} tokens/s without prefill"),
        f"rounds             {sums['rounds']}",
        f"target forwards    {sums['target_forwards']}"
        + _if(sums["tokens_per_target_forward"], ", {:.2f} tokens per target forward"),
        f"draft forwards     {sums['draft_forwards']}",
    ]
    if sums["drafted"]:
        lines += [
            f"acceptance rate    {sums['acceptance']:.3f}: {sums['accepted']} of {sums['drafted']} drafted tokens",
            f"recovered, bonus   {sums['recovered']}, {sums['bonus']}",
            f"fallback tokens    {sums['fallback_tokens']}",
            "accept histogram   accepted tokens of a round: number of rounds",
            *_bars(sums["accept_histogram"]),
        ]
    return "\n".join(lines)


def _if(value: float | None, template: str) -> str:
    return "" if value is None else template.format(value)


def _bars(histogram: dict[int, int]) -> list[str]:
    most = max(histogram.values(), default=1)
    return [
        f"  {accepted:>3} | {'#' * round(BAR_WIDTH * rounds / most):<{BAR_WIDTH}} {rounds}"
        for accepted in range(max(histogram, default=0) + 1)
        for rounds in (histogram.get(accepted, 0),)
    ]
