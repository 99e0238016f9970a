"""The drafted block states that one `exact` verification looks at (docs/algorithm.md).

A state is a set of drafted tokens that have been revealed. The order of their reveals does not matter. The set is
written as a bitmask over the drafted tokens, in step order; 0 is the block as it stands. The set of all drafted tokens
is a state unless it fills the block, because nothing is left to predict there.
"""

from heapq import heappop, heappush

from simsd.block.remasking import quota
from simsd.messages.request import DecodeParams
from simsd.messages.round import DraftedBlock

SHARPNESS = 3.0
"""How strongly the target's order is expected to follow the draft's: a position weighs confidence ** SHARPNESS."""


def drafted_states(
    drafted: DraftedBlock, params: DecodeParams, step: int, block_size: int, opened: int, budget: int
) -> list[int]:
    """Return up to `budget` states, at least one: 0 first, and each reachable from 0 through states before it.

    opened: how many positions of the block are open, drafted or not. A state is worth the chance that the target's walk
    passes through it. The walk is expected to move as `_moves` says, and to agree with a drafted token with the draft's
    confidence in it. After each step only the `budget` likeliest states are followed, which bounds the work.
    """
    full = (1 << len(drafted.offsets)) - 1
    level, worth = {0: 1.0}, {0: 1.0}
    children: dict[int, list[int]] = {}
    while level:
        following: dict[int, float] = {}
        for state, chance in level.items():
            for taken, share in _moves(state, drafted, params, step, block_size, opened):
                following[state | taken] = following.get(state | taken, 0.0) + chance * share
                children.setdefault(state, []).append(state | taken)
        if len(drafted.offsets) == opened:
            following.pop(full, None)
        level = dict(sorted(following.items(), key=lambda item: -item[1])[:budget])
        worth.update(level)
        step += 1
    # A state that can be reached in several ways may be worth more than each of its parents. It waits for one of them.
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
    state: int, drafted: DraftedBlock, params: DecodeParams, step: int, block_size: int, opened: int
) -> list[tuple[int, float]]:
    """Return the steps that the target may take from `state`, as (bitmask of the tokens that it reveals, chance).

    There is one guess if a step reveals several positions or the order is fixed. Otherwise each open position is a
    step of its own, with a chance by its weight. The chance includes that the target agrees with the drafted tokens.
    A step that must reveal a position that was not drafted leads to no state.
    """
    confidence = drafted.confidence
    still_open = [i for i in range(len(drafted.offsets)) if not state >> i & 1]
    owed = min(quota(step, params.steps, block_size), opened - state.bit_count())
    if owed > len(still_open):
        return []
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
