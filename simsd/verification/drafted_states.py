"""The drafted block states that one `exact` verification looks at (docs/algorithm.md).

A state is a set of drafted tokens that have been revealed. The order of their reveals does not matter. The set is
written as a bitmask over the drafted tokens, in step order; 0 is the block as it stands. The set of all drafted tokens
is a state unless it fills the block, because nothing is left to predict there. If it does, and another block was
drafted behind it, it stands for state 0 of that one.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate
from math import prod
from operator import mul

from simsd.block.remasking import quota
from simsd.messages.request import DecodeParams
from simsd.messages.round import DraftedBlock

SHARPNESS = 3.0
"""How strongly the target's order is expected to follow the draft's: a position weighs confidence ** SHARPNESS."""


def drafted_states(
    drafted: DraftedBlock, params: DecodeParams, step: int, block_size: int, opened: int, budget: int
) -> list[int]:
    """Return up to `budget` states of one drafted block, at least one: 0 first, and each reachable through others."""
    [states] = chain_states([drafted], params, step, block_size, opened, budget * block_size)
    return states


def chain_states(
    chain: list[DraftedBlock], params: DecodeParams, step: int, block_size: int, opened: int, row_budget: int
) -> list[list[int]]:
    """Return the states to look at in each block of a chain: all of them together in one ranking.

    chain: the drafted blocks; all but the last fill their block. step: the steps that were taken in the first one.
    opened: how many of its positions are open, drafted or not.
    row_budget: the most rows, but state 0 of the first block is there in any case. A state takes a copy of its block;
    state 0 of a later block also takes the rows of the block before it, as drafted.
    Blocks in which no state is worth its rows are left out, with all after them. The states of a block begin with 0,
    and each is reachable from 0 of the first block through states before it.

    A state is worth the chance that the target's walk gets there. The walk is expected to move as `_moves` says, and to
    agree with a drafted token with the draft's confidence in it. State 0 of a later block is the full set of the block
    before.
    """
    left = limit = max(1, row_budget // block_size)
    reach = [*accumulate((prod(drafted.confidence) for drafted in chain), mul, initial=1.0)]
    listed: list[list[int]] = [[] for _ in chain]
    # A state that can be reached in several ways may be worth more than each of its parents. It waits for one of them.
    ready, met = [(-1.0, 0, 0)], {(0, 0)}
    graphs: list[_Graph] = []
    while ready and left:
        _, index, state = heappop(ready)
        copies = 1 if state or not index else 2
        if copies > left:
            continue
        left -= copies
        listed[index].append(state)
        if not state:
            begins = (0, block_size) if index else (step, opened)
            graphs.append(_graph(chain[index], params, *begins, block_size, limit))
        graph, whole = graphs[index], (1 << len(chain[index].offsets)) - 1
        for child in graph.children.get(state, ()):
            if child in graph.worth:
                at, chance = (index, child), reach[index] * graph.worth[child]
            elif child == whole and index + 1 < len(chain):
                at, chance = (index + 1, 0), reach[index + 1]
            else:
                continue
            if at not in met:
                met.add(at)
                heappush(ready, (-chance, *at))
    return [states for states in listed if states]


@dataclass(slots=True)
class _Graph:
    """The states of one block that the walk may come to, if it comes to the block.

    worth: the chance of each, without the set of all drafted tokens. children: the states that a step from each leads
    to.
    """

    worth: dict[int, float]
    children: dict[int, list[int]]


def _graph(drafted: DraftedBlock, params: DecodeParams, step: int, opened: int, block_size: int, limit: int) -> _Graph:
    """Follow the `limit` likeliest states after each step, which bounds the work."""
    whole = (1 << len(drafted.offsets)) - 1
    level, worth = {0: 1.0}, {0: 1.0}
    children: dict[int, list[int]] = {}
    while level:
        following: dict[int, float] = {}
        for state, chance in level.items():
            for taken, share in _moves(state, drafted, params, step, block_size, opened):
                following[state | taken] = following.get(state | taken, 0.0) + chance * share
                children.setdefault(state, []).append(state | taken)
        if len(drafted.offsets) == opened:
            following.pop(whole, None)
        level = dict(sorted(following.items(), key=lambda item: -item[1])[:limit])
        worth.update(level)
        step += 1
    return _Graph(worth, children)


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
