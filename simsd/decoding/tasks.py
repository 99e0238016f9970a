"""One sequence's part of a forward: its rows by method, and what its logits rows mean."""

import dataclasses
from dataclasses import dataclass, field

from simsd.decoding.accept import Slots
from simsd.forward.pages import SequenceKV
from simsd.messages.request import DecodeParams
from simsd.messages.round import Proposal, Work
from simsd.verification.drafted_states import drafted_states
from simsd.verification.rows import Rows


@dataclass(slots=True)
class Task:
    """`start` is the open block's position; `ready` says that the open block comes with this forward.

    assumed: tokens of a block that is thought to stand before the open one, whose rows come with it.
    states: block states looked at, a bitmask over the proposal's entries -> their logits rows ·
    wanted: (settings, position, tokens revealed before) of each logits row, in order.
    """

    work: Work
    kv: SequenceKV
    start: int
    mask_token_id: int
    ready: bool = False
    assumed: list[int] = field(default_factory=list)
    rows: Rows = field(default_factory=Rows)
    commits: list[int] = field(default_factory=list)
    proposal: Proposal | None = None
    states: dict[int, Slots] = field(default_factory=dict)
    wanted: list[tuple[DecodeParams, int, int]] = field(default_factory=list)

    def open_offsets(self, block: list[int]) -> list[int]:
        return [offset for offset, token in enumerate(block) if token == self.mask_token_id]

    def commit(self, limit: int, block_size: int) -> None:
        """Rows for the committed blocks that the worker lacks: the one the open block follows, or `limit` tokens."""
        owed = self.work.commit[len(self.kv.tokens) - self.work.start :]
        self.ready = bool(self.work.block) and len(owed) <= block_size
        self.commits = owed if self.ready else owed[: limit // block_size * block_size]
        self.rows.commit(self.commits, len(self.kv.tokens), block_size)

    def assume(self, proposal: Proposal) -> None:
        """Look at the block after the open one, as if `proposal` filled that."""
        self.proposal = proposal
        self.assumed = self._filled((1 << len(proposal.offsets)) - 1)
        size = len(self.assumed)
        gamma = min(self.work.params.gamma, size)
        self.work = dataclasses.replace(self.work, block=[self.mask_token_id] * size, step=0, gamma=gamma)
        self.start += size

    def again(self) -> "Task":
        """For another draft step: the same, without rows, and nothing left to commit."""
        return Task(self.work, self.kv, self.start, self.mask_token_id, assumed=self.assumed)

    def denoise(self, block: list[int], state: int = 0, branch: int = 0) -> None:
        """One copy of the open block; its open rows want logits."""
        if self.assumed:
            self.rows.assume(self.assumed, self.start - len(self.assumed))
        offsets = self.open_offsets(block)
        self.rows.denoise(block, self.start, self.mask_token_id, branch)
        self._want(state, offsets, [len(block) - len(offsets)] * len(offsets))

    def force(self) -> None:
        """A copy of the open block before each forced token, those to its left in place."""
        forced = self.work.forced
        for rank in range(len(forced)):
            self.denoise(forced[:rank] + self.work.block[rank:], (1 << rank) - 1, branch=rank)

    def speculate(self, proposal: Proposal, max_rows: int, aligned: bool) -> None:
        """The rows that verify a proposal, by the request's method and layout. Scratch rows stay within `max_rows`."""
        self.proposal = proposal
        params, block = self.work.params, self.work.block
        if params.method == "exact":
            budget = max(1, min(params.row_budget, max_rows) // len(block))
            for branch, state in enumerate(drafted_states(proposal, params, self.work.step, len(block), budget)):
                self.denoise(self._filled(state), state, branch)
        elif params.method == "s2d2":
            self.rows.causal(block, self.start, self.mask_token_id, proposal.offsets, proposal.tokens)
            revealed = len(block) - len(self.open_offsets(block))
            self._want(0, proposal.offsets, [revealed + rank for rank in range(len(proposal.offsets))])
        elif params.layout == "branches":
            for rank in range(len(proposal.offsets) + 1):
                state = (1 << rank) - 1
                filled = self._filled(state)
                if self.open_offsets(filled):
                    self.denoise(filled, state, branch=rank)
        else:
            offsets = self.open_offsets(block)
            self.rows.paired(block, self.start, self.mask_token_id, proposal.offsets, proposal.tokens, aligned)
            rank_of = {offset: rank for rank, offset in enumerate(proposal.offsets)}
            revealed = len(block) - len(offsets)
            self._want(0, offsets, [revealed + rank_of.get(offset, len(rank_of)) for offset in offsets])

    def tested_rows(self) -> list[int]:
        """The logits row that judges each drafted token of a `simsd` proposal, in step order."""
        assert self.proposal is not None
        branches = self.work.params.layout == "branches" and self.work.params.method == "simsd"
        rows = []
        for rank, offset in enumerate(self.proposal.offsets):
            slots = self.states[(1 << rank) - 1 if branches else 0]
            rows.append(slots.rows[slots.offsets.index(offset)])
        return rows

    def undrafted(self) -> Slots:
        """The logits rows that hold the context after all candidates of a `simsd` proposal."""
        assert self.proposal is not None
        if self.work.params.layout == "branches":
            return self.states.get((1 << len(self.proposal.offsets)) - 1, Slots([], []))
        slots = self.states[0]
        rest = [i for i, offset in enumerate(slots.offsets) if offset not in self.proposal.offsets]
        return Slots([slots.offsets[i] for i in rest], [slots.rows[i] for i in rest])

    def shift(self, first: int) -> None:
        """Number the logits rows from `first` on: the batch's rows lie one task after the other."""
        for slots in self.states.values():
            slots.rows = [row + first for row in slots.rows]

    def _filled(self, state: int) -> list[int]:
        """The open block with the proposal's entries in `state` put in."""
        assert self.proposal is not None
        block = list(self.work.block)
        for i, (offset, token) in enumerate(zip(self.proposal.offsets, self.proposal.tokens, strict=True)):
            if state >> i & 1:
                block[offset] = token
        return block

    def _want(self, state: int, offsets: list[int], revealed: list[int]) -> None:
        first = len(self.wanted)
        self.states[state] = Slots(offsets, list(range(first, first + len(offsets))))
        for offset, count in zip(offsets, revealed, strict=True):
            self.wanted.append((self.work.params, self.start + offset, count))
