"""The drafted block states that one `exact` verification looks at.

A state is a set of revealed positions with the draft's tokens in them, however they got there, so orders merge. The set
is a bitmask over the drafted entries; 0 is the block as it stands. The full set needs no rows and is never listed.
"""

from heapq import heappop, heappush

from simsd.block.remasking import quota
from simsd.messages.request import DecodeParams
from simsd.messages.round import DraftedBlock

SHARPNESS = 3.0
"""How strongly the target's order is expected to follow the draft's confidence: weight (confidence)^SHARPNESS."""


def drafted_states(drafted: DraftedBlock, params: DecodeParams, step: int, block_size: int, budget: int) -> list[int]:
    """Up to `budget` states (at least 1), 0 first, each reachable from 0 through listed ones.

    A state's worth is the chance that the target's walk passes through it. The walk is modelled as moving by `_moves`
    and agreeing with a drafted token with the probability that the draft gave it. States of one level are expanded best
    first, so the work is bounded by the budget.
    """
    full = (1 << len(drafted.offsets)) - 1
    level, worth = {0: 1.0}, {0: 1.0}
    children: dict[int, list[int]] = {}
    while level:
        following: dict[int, float] = {}
        for state, chance in level.items():
            for taken, share in _moves(state, drafted, params, step, block_size):
                following[state | taken] = following.get(state | taken, 0.0) + chance * share
                children.setdefault(state, []).append(state | taken)
        following.pop(full, None)
        level = dict(sorted(following.items(), key=lambda item: -item[1])[:budget])
        worth.update(level)
        step += 1
    # A merged state may be worth more than each of its parents: it waits until one of them is listed.
    listed: list[int] = []
    ready, met = [(-1.0, 0)], {0}
    while ready and len(listed) < budget:
        _, state = heappop(ready)
        listed.append(state)
        for child in children.get(state, ()):
            if child in worth and child not in met:
                met.add(child)
                heappush(ready, (-worth[child], child))
    return listed


def _moves(
    state: int, drafted: DraftedBlock, params: DecodeParams, step: int, block_size: int
) -> list[tuple[int, float]]:
    """(entries taken together, chance) of the steps that the target may take from `state`.

    Where a step reveals several positions, or the order is fixed, one guess; else each open position by its weight.
    """
    confidence = drafted.confidence
    still_open = [i for i in range(len(drafted.offsets)) if not state >> i & 1]
    owed = min(quota(step, params.steps, block_size), len(still_open))
    surest = sorted(still_open, key=lambda i: -confidence[i])
    if params.remasking == "sequential":
        groups = [(sorted(still_open, key=drafted.offsets.__getitem__)[:owed], 1.0)]
    elif params.remasking == "dynamic":
        groups = [(surest[: max(owed, sum(confidence[i] > params.threshold for i in still_open))], 1.0)]
    elif owed > 1:
        groups = [(surest[:owed], 1.0)]
    else:
        weights = {i: confidence[i] ** SHARPNESS + 1e-6 for i in still_open}
        total = sum(weights.values())
        groups = [([i], weight / total) for i, weight in weights.items()]
    moves = []
    for entries, chance in groups:
        taken = 0
        for i in entries:
            taken |= 1 << i
            chance *= confidence[i]
        if taken:
            moves.append((taken, chance))
    return moves
