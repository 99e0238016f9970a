"""The ways to verify a block: one class for each, chosen once for a sequence's round (docs/algorithm.md).

A verification lays its rows for the target's forward, and notes what each of its logits rows is for. The logits of the
whole batch are then read at once, and each verification decides on plain numbers. A new scheme of speculation is one
class and one row of `SPECULATION`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, Self

from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams
from simsd.messages.round import DraftedBlock, Proposal
from simsd.verification.accept import Decision, Scores, Slots, TokenTests, add_bonus, denoise_step, keep_prefix, walk
from simsd.verification.drafted_states import chain_states
from simsd.verification.rows import Rows

Want = tuple[DecodeParams, int, int]
"""How a logits row is read: the request's settings, the row's position, and how many tokens of its block are revealed
before it. Together with the seed, the last two select the row's noise."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What holds for all requests: at most `max_rows` rows in one forward, and `aligned` as in `Rows.paired`."""

    max_rows: int
    aligned: bool = True


class Verification(Protocol):
    """The verification of one block in one round. `lay` is called first, then `decide`.

    block: the block as it is before. If others are drafted before it, these are taken for accepted.
    The classes below note in `lay` which logits rows they asked for: `slots` has those of each block state, and
    `tested` those that test the drafted tokens.
    """

    block: BlockState

    def lay(self, rows: Rows, wants: list[Want]) -> list[int]:
        """Add the rows of this verification to `rows`, and an entry to `wants` for each logits row that they ask for.

        Returns the logits row of the batch that tests each drafted token, in step order, or predicts each forced one.
        The list is empty for schemes in which no single row tests a token.
        """

    def decide(self, scores: Scores, tests: TokenTests) -> Decision:
        """Decide what is revealed. scores: of all logits rows of the batch. tests: of the rows that `lay` returned."""


class Speculation(Verification, Protocol):
    """The verification of a drafted block."""

    drafted: DraftedBlock

    @classmethod
    def of_chain(cls, params: DecodeParams, links: list["Link"], limits: Limits) -> list[Self]:
        """Return the verification of each block of a chain that is worth its rows, in order; the first one always is.

        limits: `max_rows` is the most rows of all of them together, with those of the blocks between them.
        """

    @staticmethod
    def cost(block_size: int, opened: int, gamma: int, row_budget: int) -> int:
        """Return how many rows it is expected to lay for `gamma` drafted tokens where `opened` positions are open."""


Link = tuple[BlockState, DraftedBlock]
"""A block of a chain, as it is if those before it stand as drafted, and what was drafted in it."""


def links_of(block: BlockState, proposal: Proposal) -> list[Link]:
    """Return the blocks of a chain, of which the open block is the first. Each but the last is drafted whole."""
    links = []
    for drafted in proposal.blocks:
        links.append((block, drafted))
        block = block.reveal(drafted.entries(), 0)
        if not block.full:
            break
        block = block.following()
    return links


def _that_fit(links: list[Link], limits: Limits, cost: Callable[[int, int, int, int], int]) -> list[Link]:
    """Return the first links whose rows fit into a forward, with those of the blocks between them; at least one.

    cost: that of the scheme.
    """
    rows = 0
    for count, (block, drafted) in enumerate(links):
        rows += cost(block.size, block.left, len(drafted.offsets), 0)
        if count and rows > limits.max_rows:
            return links[:count]
        rows += block.size
    return links


@dataclass(slots=True)
class Denoising:
    """The target's own denoising step, without a draft: one copy of the block."""

    params: DecodeParams
    block: BlockState
    slots: Slots = field(init=False)

    def lay(self, rows: Rows, wants: list[Want]) -> list[int]:
        [self.slots] = _lay_copies(rows, wants, self.params, self.block, [self.block.tokens])
        return []

    def decide(self, scores: Scores, tests: TokenTests) -> Decision:
        decision = Decision(steps=1, context=self.slots)
        for offset, token, row in denoise_step(self.params, self.block.step, self.block.size, self.slots, scores):
            decision.reveal(offset, token, "denoised", row)
        return decision


@dataclass(slots=True)
class Forced:
    """Tokens of the prompt, revealed one by one from the left: a copy of the block as it is before each of them."""

    params: DecodeParams
    block: BlockState
    forced: list[int]
    slots: list[Slots] = field(init=False)

    def lay(self, rows: Rows, wants: list[Want]) -> list[int]:
        entries = list(enumerate(self.forced))
        states = [self.block.with_tokens(entries[:rank]) for rank in range(len(entries))]
        self.slots = _lay_copies(rows, wants, self.params, self.block, states)
        return [slots.rows[0] for slots in self.slots]

    def decide(self, scores: Scores, tests: TokenTests) -> Decision:
        decision = Decision()
        for offset, token in enumerate(self.forced):
            decision.reveal(offset, token, "denoised", self.slots[offset].rows[0])
        return decision


@dataclass(slots=True)
class Paired:
    """SimSD's paired rows (paper, section 3): a data row for each drafted token, a mask row for each open position."""

    params: DecodeParams
    block: BlockState
    drafted: DraftedBlock
    limits: Limits
    slots: Slots = field(init=False)

    @classmethod
    def of_chain(cls, params: DecodeParams, links: list[Link], limits: Limits) -> list[Self]:
        return [cls(params, *link, limits) for link in _that_fit(links, limits, cls.cost)]

    def lay(self, rows: Rows, wants: list[Want]) -> list[int]:
        block, drafted = self.block, self.drafted
        offsets = block.open_offsets
        rank_of = {offset: rank for rank, offset in enumerate(drafted.offsets)}
        revealed = block.size - len(offsets)
        counts = [revealed + rank_of.get(offset, len(rank_of)) for offset in offsets]
        self.slots = _want(wants, self.params, block.start, offsets, counts)
        mask = block.mask_token_id
        rows.paired(block.tokens, block.start, mask, drafted.offsets, drafted.tokens, self.limits.aligned)
        row_of = dict(zip(offsets, self.slots.rows, strict=True))
        return [row_of[offset] for offset in drafted.offsets]

    def decide(self, scores: Scores, tests: TokenTests) -> Decision:
        decision = Decision()
        if keep_prefix(decision, self.drafted, tests):
            # After a rejection no row shows the state of the block. If all tokens stand, the undrafted positions do.
            decision.context = self._undrafted()
            add_bonus(decision, self.params, decision.context, scores)
        return decision

    def _undrafted(self) -> Slots:
        rest = [
            (offset, row)
            for offset, row in zip(self.slots.offsets, self.slots.rows, strict=True)
            if offset not in self.drafted.offsets
        ]
        return Slots([offset for offset, _ in rest], [row for _, row in rest])

    @staticmethod
    def cost(block_size: int, opened: int, gamma: int, row_budget: int) -> int:
        return block_size + gamma


@dataclass(slots=True)
class Branches:
    """A copy of the block before each drafted token and one after the last, for the bonus: sequential denoising."""

    params: DecodeParams
    block: BlockState
    drafted: DraftedBlock
    limits: Limits
    slots: list[Slots] = field(init=False)

    @classmethod
    def of_chain(cls, params: DecodeParams, links: list[Link], limits: Limits) -> list[Self]:
        return [cls(params, *link, limits) for link in _that_fit(links, limits, cls.cost)]

    def lay(self, rows: Rows, wants: list[Want]) -> list[int]:
        entries = list(self.drafted.entries())
        states = [self.block.with_tokens(entries[:rank]) for rank in range(len(entries) + 1)]
        if self.block.mask_token_id not in states[-1] or self.params.fallback == "target":
            states.pop()  # The draft fills the block, so nothing is left to predict; or there is no bonus.
        self.slots = _lay_copies(rows, wants, self.params, self.block, states)
        slots = zip(self.drafted.offsets, self.slots, strict=False)
        return [state.rows[state.offsets.index(offset)] for offset, state in slots]

    def decide(self, scores: Scores, tests: TokenTests) -> Decision:
        decision = Decision()
        if keep_prefix(decision, self.drafted, tests):
            whole = len(self.slots) == len(self.drafted.offsets)
            decision.context = Slots([], []) if whole else self.slots[-1]
            add_bonus(decision, self.params, decision.context, scores)
        else:
            decision.context = self.slots[len(decision.reveals) - 1]
        return decision

    @staticmethod
    def cost(block_size: int, opened: int, gamma: int, row_budget: int) -> int:
        return (gamma + (gamma < opened)) * block_size


@dataclass(slots=True)
class DraftedStates:
    """`exact`: a copy of the block for each drafted state that the target's own walk is likely to pass through."""

    params: DecodeParams
    block: BlockState
    drafted: DraftedBlock
    states: list[int]
    slots: dict[int, Slots] = field(init=False)

    @classmethod
    def of_chain(cls, params: DecodeParams, links: list[Link], limits: Limits) -> list[Self]:
        block, budget = links[0][0], min(params.row_budget, limits.max_rows)
        listed = chain_states([drafted for _, drafted in links], params, block.step, block.size, block.left, budget)
        return [cls(params, *link, states) for link, states in zip(links, listed, strict=False)]

    def lay(self, rows: Rows, wants: list[Want]) -> list[int]:
        block, entries = self.block, list(self.drafted.entries())
        filled = [
            block.with_tokens([entry for i, entry in enumerate(entries) if state >> i & 1]) for state in self.states
        ]
        self.slots = dict(zip(self.states, _lay_copies(rows, wants, self.params, block, filled), strict=True))
        return []

    def decide(self, scores: Scores, tests: TokenTests) -> Decision:
        return walk(self.params, self.block.step, self.block.size, self.drafted, self.slots, scores)

    @staticmethod
    def cost(block_size: int, opened: int, gamma: int, row_budget: int) -> int:
        return max(1, min(row_budget // block_size, (1 << gamma) - (gamma == opened))) * block_size


@dataclass(slots=True)
class Causal:
    """S2D2: the block is read from left to right, and a row of its own predicts at each drafted position."""

    params: DecodeParams
    block: BlockState
    drafted: DraftedBlock
    limits: Limits

    @classmethod
    def of_chain(cls, params: DecodeParams, links: list[Link], limits: Limits) -> list[Self]:
        return [cls(params, *link, limits) for link in _that_fit(links, limits, cls.cost)]

    def lay(self, rows: Rows, wants: list[Want]) -> list[int]:
        block, drafted = self.block, self.drafted
        revealed = block.size - block.left
        counts = range(revealed, revealed + len(drafted.offsets))
        rows.causal(block.tokens, block.start, block.mask_token_id, drafted.offsets, drafted.tokens)
        return _want(wants, self.params, block.start, drafted.offsets, list(counts)).rows

    def decide(self, scores: Scores, tests: TokenTests) -> Decision:
        decision = Decision()
        keep_prefix(decision, self.drafted, tests)
        decision.steps = 1
        return decision

    @staticmethod
    def cost(block_size: int, opened: int, gamma: int, row_budget: int) -> int:
        return block_size + gamma


SPECULATION: dict[str, type[Speculation]] = {
    "paired": Paired,
    "branches": Branches,
    "exact": DraftedStates,
    "s2d2": Causal,
}
"""The scheme for each method; for simsd, the scheme for each layout."""


def speculation(params: DecodeParams) -> type[Speculation]:
    """Return the scheme by which a request's drafted blocks are verified."""
    return SPECULATION[params.layout if params.method == "simsd" else params.method]


def lay_chain(
    params: DecodeParams, block: BlockState, proposal: Proposal, limits: Limits, rows: Rows, wants: list[Want]
) -> list[tuple[Speculation, range, list[int]]]:
    """Choose the verifications of a proposal's blocks, of which the open `block` is the first, and lay their rows.

    Between the rows of two blocks come those of the first one as it was drafted, as if it were committed. Returns each
    verification with the range of its logits rows, and what its `lay` returned.
    """
    # Committing one block comes before all rows of a chain, and its rows must not depend on whether there is one.
    room = Limits(limits.max_rows - block.size, limits.aligned)
    laid: list[tuple[Speculation, range, list[int]]] = []
    for each in speculation(params).of_chain(params, links_of(block, proposal), room):
        if laid:
            before = laid[-1][0]
            rows.assume(before.block.with_tokens(before.drafted.entries()), before.block.start, block.size)
        first = len(wants)
        tested = each.lay(rows, wants)
        laid.append((each, range(first, len(wants)), tested))
    return laid


def _lay_copies(
    rows: Rows, wants: list[Want], params: DecodeParams, block: BlockState, states: list[tuple[int, ...]]
) -> list[Slots]:
    """Lay a copy of `block` in each of `states`, each on a branch of its own. The open rows of each want logits."""
    mask, slots = block.mask_token_id, []
    for tokens in states:
        offsets = [offset for offset, token in enumerate(tokens) if token == mask]
        slots.append(_want(wants, params, block.start, offsets, [len(tokens) - len(offsets)] * len(offsets)))
    for branch, tokens in enumerate(states):
        rows.denoise(tokens, block.start, mask, branch)
    return slots


def _want(wants: list[Want], params: DecodeParams, start: int, offsets: list[int], revealed: list[int]) -> Slots:
    """Ask for the logits of `offsets`. revealed: for each, how many tokens of the block are revealed before it."""
    first = len(wants)
    wants += [(params, start + offset, count) for offset, count in zip(offsets, revealed, strict=True)]
    return Slots(list(offsets), list(range(first, first + len(offsets))))
