"""How the methods get through an answer, as a Markov chain over its positions. docs/capacity.md derives it.

A round verifies a chain of blocks: the open block and those that were drafted behind it, each as if the blocks before
it stood. A method is described by what it makes of one block (`Fate`); the chain goes on into the next block only if
the block comes to stand exactly as it was drafted. All results are expected values: a prediction from a few
probabilities, which were measured or assumed.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from simsd.planning.costs import require

Chances = NDArray[np.float64]
MAX_DEPTH = 8
"""The most blocks that are drafted beyond the open one (`lookahead`)."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What a verification makes of a block with r open positions.

    stops: [r + 1], the probability that the round ends in this block with so many of its positions revealed.
    stands: the probability that the block stands as drafted, so that the round goes on into the next block.
    """

    stops: Chances
    stands: float


class Method(Hashable, Protocol):
    """A way to decode. `opened` positions are open in the block that is looked at.

    drafts: whether a draft model takes part. whole: whether the last block of an answer is as good as full before the
    answer's end is known in it. If not, what is behind the end costs no round of its own.
    """

    drafts: ClassVar[bool]
    whole: ClassVar[bool]

    def fate(self, opened: int) -> Fate: ...

    def rows(self, opened: int, block_size: int) -> float:
        """Return the target's rows for one block of a verification, without those that commit or assume a block."""

    def logits(self, opened: int) -> float:
        """Return how many of these rows want logits."""


class Alone:
    """What `vanilla` methods have in common: one copy of the block, and no draft model."""

    drafts: ClassVar[bool] = False

    def rows(self, opened: int, block_size: int) -> float:
        return block_size

    def logits(self, opened: int) -> float:
        return opened


@dataclass(frozen=True, slots=True)
class Static(Alone):
    """`vanilla` that reveals a fixed number of positions a step, the surest first."""

    tokens_a_step: int = 1
    whole: ClassVar[bool] = True

    def fate(self, opened: int) -> Fate:
        return Fate(_only(min(self.tokens_a_step, opened), opened), 0.0)


@dataclass(frozen=True, slots=True)
class Dynamic(Alone):
    """`vanilla` with dynamic remasking. share: the probability that an open position is above the threshold."""

    share: float
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require("share", self.share, 0, 1)

    def fate(self, opened: int) -> Fate:
        return Fate(reveals(self.share, opened), 0.0)


@dataclass(frozen=True, slots=True)
class LeftToRight:
    """`simsd` with paired rows, from left to right. acceptance: of a drafted token, if those before it stand."""

    acceptance: float
    drafts: ClassVar[bool] = True
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require("acceptance", self.acceptance, 0, 1)

    def fate(self, opened: int) -> Fate:
        stops = np.zeros(opened + 1)
        stops[1:] = self.acceptance ** np.arange(opened) * (1 - self.acceptance)
        return Fate(stops, self.acceptance**opened)

    def rows(self, opened: int, block_size: int) -> float:
        return block_size + opened  # a data row for each position that has a token, and a mask row for each open one

    def logits(self, opened: int) -> float:
        return opened


@dataclass(frozen=True, slots=True)
class States:
    """`exact` over dynamic remasking: the target's own steps through drafted states.

    acceptance: the probability that a token that a step reveals is the drafted one. share: as in `Dynamic`.
    draft_share: the probability that the draft is as sure of a position. It decides how many states are looked at.
    foreseen: the probability that the state to which a step with drafted tokens leads is among those looked at, if the
    block is not full.
    states: how many states of a block are looked at, at most.
    """

    acceptance: float
    share: float
    draft_share: float
    foreseen: float = 1.0
    states: int = 8
    drafts: ClassVar[bool] = True
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("acceptance", "share", "draft_share", "foreseen"):
            require(name, getattr(self, name), 0, 1)
        require("states", self.states, 1)

    def fate(self, opened: int) -> Fate:
        stops, stands = np.zeros(opened + 1), 0.0
        at = _only(opened, opened)  # the walk is in a state that was looked at, with so many positions open
        for looked in range(1, self.states + 1):
            following = np.zeros(opened + 1)
            for left in range(1, opened + 1):
                for taken, chance in enumerate(reveals(self.share, left)):
                    agreed = at[left] * chance * self.acceptance**taken
                    stops[opened - left + taken] += at[left] * chance - agreed
                    if taken == left:
                        stands += agreed
                    else:
                        goes_on = self.foreseen if looked < self.states else 0.0
                        following[left - taken] += agreed * goes_on
                        stops[opened - left + taken] += agreed * (1 - goes_on)
            at = following
        return Fate(stops, stands)

    def rows(self, opened: int, block_size: int) -> float:
        return block_size * sum(chance for chance, _ in self._looked_at(opened))

    def logits(self, opened: int) -> float:
        return sum(chance * left for chance, left in self._looked_at(opened))

    def _looked_at(self, opened: int) -> Iterator[tuple[float, int]]:
        """Iterate over the states that may be looked at, as (probability that it is, its open positions).

        The draft expects that the first step reveals all positions that it is sure of, and each later step one. A full
        block needs no state.
        """
        yield 1.0, opened
        for taken, chance in enumerate(reveals(self.draft_share, opened)):
            for left in range(opened - taken, max(0, opened - taken - self.states + 1), -1):
                yield float(chance), left


def _only(value: int, most: int) -> Chances:
    """Return the distribution over 0 to `most` that has only one value."""
    chances = np.zeros(most + 1)
    chances[value] = 1.0
    return chances


@lru_cache(maxsize=4096)
def reveals(share: float, opened: int) -> Chances:
    """Return the probability that a dynamic step reveals 0 to `opened` positions; it reveals at least one."""
    chances = np.array([comb(opened, k) * share**k * (1 - share) ** (opened - k) for k in range(opened + 1)])
    chances[1] += chances[0]
    chances[0] = 0.0
    return chances


@dataclass(frozen=True, slots=True)
class Depths:
    """How many blocks beyond the open one a round has drafted.

    anew: in the first round, and after a chain of which not all stood. on: after one that stood, by its own depth.
    """

    anew: int
    on: tuple[int, ...]

    @classmethod
    def always(cls, depth: int) -> "Depths":
        """Draft as many blocks in every round."""
        require("depth", depth, 0, MAX_DEPTH)
        return cls(depth, (depth,) * (depth + 1))


@dataclass(frozen=True, slots=True)
class Counts:
    """What the decoding rounds of an answer are expected to take. The prompt's own rounds are no part of it.

    by_blocks: [n], rounds by the number of blocks that were verified: entry k is for k blocks.
    anew: rounds for which the draft had to begin anew: the first, and those after a chain of which not all stood.
    committed: blocks whose KV a round of their own commits, since no verification had them as an assumed block.
    rows, logits: of the target, for the proposals alone.
    """

    by_blocks: tuple[float, ...]
    anew: float
    committed: float
    rows: float
    logits: float

    @property
    def rounds(self) -> float:
        return sum(self.by_blocks)

    @property
    def blocks(self) -> float:
        """The blocks that were verified; with a draft, those that were drafted."""
        return sum(number * rounds for number, rounds in enumerate(self.by_blocks))

    @property
    def kept(self) -> float:
        """The blocks that are laid as they stand or are assumed, for their KV: before a further block, or to commit."""
        return self.blocks - self.rounds + self.committed

    def target_rows(self, block_size: int) -> float:
        return self.rows + block_size * self.kept

    def draft_rows(self, block_size: int, draft_steps: int) -> float:
        """Return the draft's rows: each block at each draft step, and what is assumed or committed, once."""
        return block_size * (draft_steps * self.blocks + self.kept)

    @classmethod
    def sum(cls, counts: "Sequence[Counts]") -> "Counts":
        most = max(len(each.by_blocks) for each in counts)
        padded = [each.by_blocks + (0.0,) * (most - len(each.by_blocks)) for each in counts]
        return cls(
            tuple(map(sum, zip(*padded, strict=True))),
            *(sum(getattr(each, name) for each in counts) for name in ("anew", "committed", "rows", "logits")),
        )


@dataclass(frozen=True, slots=True)
class _Chain:
    """One verification of a chain. stops: [n + 1], the probability that it ends with so many positions revealed in all
    blocks together, because a block did not stand as drafted. stands: the probability that all n stand."""

    stops: Chances
    stands: float


@lru_cache(maxsize=4096)
def _fate(method: Method, opened: int) -> Fate:
    return method.fate(opened)


@lru_cache(maxsize=65536)
def verification(method: Method, opened: tuple[int, ...]) -> _Chain:
    """Return what a verification of blocks with so many open positions each brings."""
    stops, stands, before = np.zeros(sum(opened) + 1), 1.0, 0
    for size in opened:
        fate = _fate(method, size)
        stops[before : before + size + 1] += stands * fate.stops
        stands *= fate.stands
        before += size
    return _Chain(stops, stands)


@lru_cache(maxsize=4096)
def _laid(method: Method, opened: int, block_size: int) -> tuple[float, float]:
    """Return the rows and the logits of one block of a verification."""
    return method.rows(opened, block_size), method.logits(opened)


@lru_cache(maxsize=4096)
def count(method: Method, block_size: int, first: int, positions: int, depths: Depths) -> Counts:
    """Return the expected counts of an answer.

    first: how many tokens of the prompt stand in the first block. positions: of the answer, with the EOS that ends it;
    nothing is drafted in blocks behind the last.
    """
    require("first", first, 0, block_size - 1)
    require("positions", positions, 1)
    last = -(-(first + positions) // block_size) - 1
    end = (last + 1) * block_size if method.whole else first + positions
    # visits[p, d]: expected rounds that begin after p positions, counted from the first block's start, at depth d.
    visits = np.zeros((end + 1, len(depths.on)))
    visits[first, depths.anew] = 1.0
    by_blocks, anew, committed, rows, logits = np.zeros(len(depths.on) + 1), 1.0, 0.0, 0.0, 0.0
    for at in range(first, end):
        if at % block_size == 0 and at > first:
            committed += visits[at].sum()
        for depth in np.flatnonzero(visits[at]):
            here, chance = at // block_size, float(visits[at, depth])
            blocks = range(here, min(last, here + int(depth)) + 1)
            sizes = [block_size * (block + 1) - max(at, block_size * block) for block in blocks]
            opened = [*sizes[:-1], min(sizes[-1], end - max(at, block_size * blocks[-1]))]
            found = verification(method, tuple(opened))
            reached = at + sum(opened)
            visits[at : reached + 1, depths.anew] += chance * found.stops
            visits[reached, depths.on[depth]] += chance * found.stands
            anew += chance * found.stops[: end - at].sum()
            by_blocks[len(blocks)] += chance
            rows += chance * sum(_laid(method, size, block_size)[0] for size in sizes)
            logits += chance * sum(_laid(method, size, block_size)[1] for size in sizes)
    return Counts(tuple(by_blocks.tolist()), float(anew), float(committed), float(rows), float(logits))


def share_of(falling: Callable[[float], float], value: float) -> float:
    """Return the share, 0 to 1, at which a falling function has this value; of those out of reach, the nearer end."""
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > value else (low, middle)
    return high


def dynamic_steps(share: float, block_size: int, first: int, positions: int) -> float:
    """Return the expected steps of `vanilla` with dynamic remasking for an answer as in `count`."""
    return count(Dynamic(share), block_size, first, positions, Depths.always(0)).rounds
