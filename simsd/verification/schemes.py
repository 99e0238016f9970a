"""The ways to look at an open block: one class each, chosen once for a sequence's round.

A verification lays rows for the target's forward and notes which logits row is for what; the tensor work is done for
the whole batch at once; then each decides on plain numbers. A new scheme of speculation is one class and one row of
`SPECULATION`.
"""

from dataclasses import dataclass, field
from typing import Protocol

from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams
from simsd.messages.round import DraftedBlock
from simsd.verification.accept import Decision, Scores, Slots, TokenTests, add_bonus, denoise_step, keep_prefix, walk
from simsd.verification.drafted_states import drafted_states
from simsd.verification.rows import Rows

Want = tuple[DecodeParams, int, int]
"""What a logits row is read by: the request's settings, its position, the tokens revealed in its block before."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds or changes the rows of any request: `max_rows` of one forward; `aligned` as of `Rows.paired`."""

    max_rows: int
    aligned: bool = True


class Verification(Protocol):
    """One look at an open block. `lay` comes first, then `decide`."""

    def lay(self, rows: Rows, wants: list[Want]) -> list[int]:
        """Add this look's rows, and an entry to `wants` for each logits row of the batch that they want.

        -> the logits row of the batch that tests each drafted token, in step order, or shows each forced one; none
        where no single row does.
        """

    def decide(self, scores: Scores, tests: TokenTests) -> Decision:
        """What stands. scores: of all logits rows of the batch; tests: of the rows that `lay` returned."""


class Speculation(Verification, Protocol):
    """A look at a drafted block."""

    def __init__(self, params: DecodeParams, block: BlockState, drafted: DraftedBlock, limits: Limits) -> None: ...

    @staticmethod
    def cost(block_size: int, gamma: int, row_budget: int) -> int:
        """Rows that it lays for `gamma` drafted tokens, in expectation."""


@dataclass(slots=True)
class Denoising:
    """The target's own step: one copy of the block, no draft."""

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
    """Tokens of the prompt, revealed one by one from the left: a copy of the block before each of them."""

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
    """SimSD's one pass (paper, section 3): drafted data rows, and a mask row for each open position at its step."""

    params: DecodeParams
    block: BlockState
    drafted: DraftedBlock
    limits: Limits
    slots: Slots = field(init=False)
    tested: list[int] = field(init=False)

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
        self.tested = [row_of[offset] for offset in drafted.offsets]
        return self.tested

    def decide(self, scores: Scores, tests: TokenTests) -> Decision:
        decision = Decision()
        if keep_prefix(decision, self.drafted, self.tested, tests):
            # No row shows the state before a rejected token; those of undrafted positions show the one behind all.
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
    def cost(block_size: int, gamma: int, row_budget: int) -> int:
        return block_size + gamma


@dataclass(slots=True)
class Branches:
    """A copy of the block before each drafted token and one behind the last: sequential denoising, in one forward."""

    params: DecodeParams
    block: BlockState
    drafted: DraftedBlock
    limits: Limits
    slots: list[Slots] = field(init=False)
    tested: list[int] = field(init=False)

    def lay(self, rows: Rows, wants: list[Want]) -> list[int]:
        entries = list(self.drafted.entries())
        states = [self.block.with_tokens(entries[:rank]) for rank in range(len(entries) + 1)]
        if self.block.mask_token_id not in states[-1]:
            states.pop()  # nothing is left to ask about
        self.slots = _lay_copies(rows, wants, self.params, self.block, states)
        slots = zip(self.drafted.offsets, self.slots, strict=False)
        self.tested = [state.rows[state.offsets.index(offset)] for offset, state in slots]
        return self.tested

    def decide(self, scores: Scores, tests: TokenTests) -> Decision:
        decision = Decision()
        if keep_prefix(decision, self.drafted, self.tested, tests):
            whole = len(self.slots) == len(self.drafted.offsets)
            decision.context = Slots([], []) if whole else self.slots[-1]
            add_bonus(decision, self.params, decision.context, scores)
        else:
            decision.context = self.slots[len(decision.reveals) - 1]
        return decision

    @staticmethod
    def cost(block_size: int, gamma: int, row_budget: int) -> int:
        return (gamma + 1) * block_size


@dataclass(slots=True)
class DraftedStates:
    """`exact`: a copy of the block for each drafted state that the target's own walk is likely to pass."""

    params: DecodeParams
    block: BlockState
    drafted: DraftedBlock
    limits: Limits
    slots: dict[int, Slots] = field(init=False)

    def lay(self, rows: Rows, wants: list[Want]) -> list[int]:
        block = self.block
        budget = max(1, min(self.params.row_budget, self.limits.max_rows) // block.size)
        listed = drafted_states(self.drafted, self.params, block.step, block.size, budget)
        entries = list(self.drafted.entries())
        filled = [block.with_tokens([entry for i, entry in enumerate(entries) if state >> i & 1]) for state in listed]
        self.slots = dict(zip(listed, _lay_copies(rows, wants, self.params, block, filled), strict=True))
        return []

    def decide(self, scores: Scores, tests: TokenTests) -> Decision:
        return walk(self.params, self.block.step, self.block.size, self.drafted, self.slots, scores)

    @staticmethod
    def cost(block_size: int, gamma: int, row_budget: int) -> int:
        return max(1, min(row_budget // block_size, (1 << gamma) - 1)) * block_size


@dataclass(slots=True)
class Causal:
    """S2D2: the block read from left to right, beside it a row that predicts at each drafted position."""

    params: DecodeParams
    block: BlockState
    drafted: DraftedBlock
    limits: Limits
    slots: Slots = field(init=False)

    def lay(self, rows: Rows, wants: list[Want]) -> list[int]:
        block, drafted = self.block, self.drafted
        revealed = block.size - block.left
        counts = range(revealed, revealed + len(drafted.offsets))
        self.slots = _want(wants, self.params, block.start, drafted.offsets, list(counts))
        rows.causal(block.tokens, block.start, block.mask_token_id, drafted.offsets, drafted.tokens)
        return self.slots.rows

    def decide(self, scores: Scores, tests: TokenTests) -> Decision:
        decision = Decision()
        keep_prefix(decision, self.drafted, self.slots.rows, tests)
        decision.steps = 1
        return decision

    @staticmethod
    def cost(block_size: int, gamma: int, row_budget: int) -> int:
        return block_size + gamma


SPECULATION: dict[str, type[Speculation]] = {
    "paired": Paired,
    "branches": Branches,
    "exact": DraftedStates,
    "s2d2": Causal,
}
"""By the request's method, or in simsd by its layout."""


def speculation(params: DecodeParams) -> type[Speculation]:
    """How a request's drafted blocks are looked at."""
    return SPECULATION[params.layout if params.method == "simsd" else params.method]


def _lay_copies(
    rows: Rows, wants: list[Want], params: DecodeParams, block: BlockState, states: list[tuple[int, ...]]
) -> list[Slots]:
    """A copy of `block` in each of `states`, on a branch of its own; the open rows of each want logits."""
    mask, slots = block.mask_token_id, []
    for tokens in states:
        offsets = [offset for offset, token in enumerate(tokens) if token == mask]
        slots.append(_want(wants, params, block.start, offsets, [len(tokens) - len(offsets)] * len(offsets)))
    for branch, tokens in enumerate(states):
        rows.denoise(tokens, block.start, mask, branch)
    return slots


def _want(wants: list[Want], params: DecodeParams, start: int, offsets: list[int], revealed: list[int]) -> Slots:
    """Ask for the logits of `offsets`, whose noise is that of a position with `revealed` tokens before it."""
    first = len(wants)
    wants += [(params, start + offset, count) for offset, count in zip(offsets, revealed, strict=True)]
    return Slots(list(offsets), list(range(first, first + len(offsets))))
