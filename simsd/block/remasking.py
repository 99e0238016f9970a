"""Which positions a denoising step reveals (SDAR's reference `generate`, four strategies). Plain Python, no torch."""

from collections.abc import Sequence

from simsd.messages.request import DecodeParams


def quota(step: int, steps: int, block_size: int) -> int:
    """Positions that step `step` (0-based) of `steps` owes: B // S, one more in the first B % S; at least 1."""
    return max(1, block_size // steps + (step < block_size % steps))


def choose(
    params: DecodeParams,
    step: int,
    block_size: int,
    offsets: Sequence[int],
    confidence: Sequence[float],
    entropy: Sequence[float],
) -> list[int]:
    """Indices into `offsets` (the open positions, ascending) that this step reveals, surest first.

    static: the quota's most confident · dynamic: all above `threshold`, at least the quota · sequential: leftmost quota
    · entropy: lowest entropies while their sum stays within `entropy_bound`, at least the quota. Only this one reads
    `entropy`.
    """
    owed = min(quota(step, params.steps, block_size), len(offsets))
    if params.remasking == "sequential":
        return list(range(owed))
    if params.remasking == "entropy":
        order = sorted(range(len(offsets)), key=lambda i: (entropy[i], i))
        total, count = 0.0, 0
        for i in order:
            total += entropy[i]
            if total >= params.entropy_bound:
                break
            count += 1
        return order[: max(owed, count)]
    order = sorted(range(len(offsets)), key=lambda i: (-confidence[i], i))
    if params.remasking == "dynamic":
        owed = max(owed, sum(c > params.threshold for c in confidence))
    return order[:owed]
