"""Which positions a denoising step reveals: the four remasking strategies of SDAR's reference `generate`."""

from collections.abc import Sequence

from simsd.messages.request import DecodeParams


def quota(step: int, steps: int, block_size: int) -> int:
    """Return how many positions step `step` (from 0) of S = `steps` must reveal.

    It is B // S for block size B, and one more in the first B % S steps; at least 1.
    """
    return max(1, block_size // steps + (step < block_size % steps))


def choose(
    params: DecodeParams,
    step: int,
    block_size: int,
    offsets: Sequence[int],
    confidence: Sequence[float],
    entropy: Sequence[float],
) -> list[int]:
    """Return indices into `offsets` (the open positions, ascending) of the positions that this step reveals.

    They come surest first. `static` reveals as many of the most confident positions as the quota says. `sequential`
    reveals the leftmost ones. `dynamic` reveals all whose confidence is above `threshold`, and `entropy` those of the
    lowest entropies (nats) whose sum is below `entropy_bound`; both reveal at least the quota. Only `entropy` reads
    the entropies.
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
