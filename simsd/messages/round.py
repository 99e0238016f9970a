"""The messages of a round between the loop and the workers: work, proposals and verdicts.

A proposal is a list of drafted blocks, and a verdict is a list of decided blocks: the open block, and those that were
drafted beyond it.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simsd.messages.block import BlockState
from simsd.messages.request import DecodeParams, Report, RevealKind, TokenLogprob


@dataclass(slots=True)
class Work:
    """One sequence's part of a round, for one worker. It suffices to rebuild all that the worker knows of the sequence.

    total_tokens: the tokens to reserve pages for.
    start: the number of tokens that the worker should hold KV for. commit: the tokens of the whole blocks that follow.
    The worker may hold KV for some of `commit`, too. If it holds less than `start` or more than all of these, it only
    reports how much it holds.
    commit_limit: how many tokens of a prompt may be committed in this round.
    block: the open block, or None while a prompt is prefilled. When it is given, the worker has at most one block to
    commit, beside blocks that it assumed and that stand in `commit` now.
    gamma: how many tokens the draft is asked for, or the target is told to expect. At 0 the target denoises by itself,
    unless `proposal` holds what it drafted in its own last forward.
    prompt_tokens: the position at which the answer begins.
    forced: tokens of the prompt that the target reveals one by one from the left, for their log-probabilities.
    """

    seq_id: str
    params: DecodeParams
    total_tokens: int
    start: int
    commit: list[int]
    commit_limit: int
    block: BlockState | None
    gamma: int
    prompt_tokens: int = 0
    proposal: "Proposal | None" = None
    forced: list[int] = field(default_factory=list)
    report: Report = field(default_factory=Report)


@dataclass(slots=True)
class DraftedBlock:
    """The drafted tokens of one block, in step order.

    offsets, tokens: [g].
    confidence: [g], the draft's probability of what it revealed. In s2d2 it is the chance that the token is accepted.
    q_ids, q_probs: [g, k], the token ids and probabilities of the distribution that each token was sampled from. They
    are empty (k = 0) at temperature 0, and in exact.
    """

    offsets: list[int]
    tokens: list[int]
    confidence: list[float]
    q_ids: NDArray[np.int64]
    q_probs: NDArray[np.float32]

    @classmethod
    def greedy(cls, offsets: list[int], tokens: list[int], confidence: list[float]) -> "DraftedBlock":
        """Make a drafted block without the distributions, which only rejection sampling reads."""
        count = len(offsets)
        return cls(offsets, tokens, confidence, np.zeros((count, 0), np.int64), np.zeros((count, 0), np.float32))

    def entries(self) -> Iterator[tuple[int, int]]:
        """Iterate over (offset, token) in step order."""
        return zip(self.offsets, self.tokens, strict=True)


@dataclass(slots=True)
class Proposal:
    """A chain of drafted blocks: the open block and those after it, each drafted as if the one before were accepted.

    In the last block nothing may be drafted. The target then takes a step of its own in it, if it gets there.
    """

    blocks: list[DraftedBlock]


@dataclass(slots=True)
class Proposals:
    """What the draft answers to one call of `propose`.

    items: a proposal by sequence id, only for sequences whose KV in the draft is complete.
    cached: how many tokens of each sequence the draft holds KV for.
    took_part: the number of forwards that each sequence had rows in. forwards, rows, elapsed_s: forwards of the whole
    batch, rows in them, and their seconds.
    ahead_s: the part of `elapsed_s` in which the draft worked ahead, since the last call. The other counts include
    that work, too.
    """

    items: dict[str, Proposal]
    cached: dict[str, int]
    took_part: dict[str, int]
    forwards: int
    rows: int
    elapsed_s: float
    ahead_s: float = 0.0


@dataclass(slots=True)
class DraftCost:
    """What some drafting cost: forwards, rows in them, and seconds. `took_part` counts forwards by sequence id."""

    took_part: Counter[str] = field(default_factory=Counter)
    forwards: int = 0
    rows: int = 0
    elapsed_s: float = 0.0

    def __iadd__(self, other: "DraftCost") -> "DraftCost":
        self.took_part += other.took_part
        self.forwards, self.rows = self.forwards + other.forwards, self.rows + other.rows
        self.elapsed_s += other.elapsed_s
        return self


@dataclass(slots=True)
class DraftedAhead:
    """What was drafted for `work` ahead of its round. `assumed` are the blocks before its open block, as drafted.

    The target had not decided the assumed blocks yet.
    """

    work: Work
    assumed: list[int]
    proposal: Proposal

    def serves(self, work: Work) -> bool:
        """Whether this proposal answers `work`: the assumed blocks stand, and nothing has been revealed since."""
        then = self.work
        return (
            (work.block, work.gamma, work.params) == (then.block, then.gamma, then.params)
            and work.start + len(work.commit) == then.start + len(then.commit) + len(self.assumed)
            and work.commit[-len(self.assumed) :] == self.assumed
        )


@dataclass(slots=True)
class Ahead:
    """The result of one call of `propose_ahead`.

    items: what was drafted, by sequence id. cached: how many tokens of each sequence the draft holds KV for.
    """

    items: dict[str, DraftedAhead]
    cached: dict[str, int]
    cost: DraftCost

    def proposals(self, batch: list[Work]) -> Proposals | None:
        """Return these drafts as the answer to `propose(batch)`, or None unless they answer all of `batch`."""
        if not all(work.seq_id in self.items and self.items[work.seq_id].serves(work) for work in batch):
            return None
        return Proposals(
            items={work.seq_id: self.items[work.seq_id].proposal for work in batch},
            cached=self.cached,
            took_part=dict(self.cost.took_part),
            forwards=self.cost.forwards,
            rows=self.cost.rows,
            elapsed_s=self.cost.elapsed_s,
            ahead_s=self.cost.elapsed_s,
        )


@dataclass(slots=True)
class BlockVerdict:
    """What the target decided about one block. Nothing was decided if a block before it did not stand as drafted.

    reveals: (offset, token) in the order in which they were revealed.
    kinds: how each of them got its token. logprobs: an entry for each, if the request reports log-probabilities.
    proposed: the drafted tokens, as (offset, token) in step order, if the request reports events.
    steps: denoising steps that were taken. drafted: the number of tokens that were drafted for it.
    fallback: the number of tokens that were revealed without a draft, although the method is simsd.
    """

    reveals: list[tuple[int, int]] = field(default_factory=list)
    kinds: list[RevealKind] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    proposed: list[tuple[int, int]] = field(default_factory=list)
    steps: int = 0
    drafted: int = 0
    fallback: int = 0


@dataclass(slots=True)
class Verdict:
    """What the target decided about a sequence.

    cached: tokens that the target holds KV for now, of which `prefix_hit` came from its prefix cache.
    blocks: a verdict for each block of the chain, in order.
    draft_cached: tokens that the draft holds KV for, or None if it took no part.
    proposal: what the target drafts for itself.
    target_forwards, draft_forwards: the forwards that the sequence had rows in.
    """

    cached: int
    blocks: list[BlockVerdict] = field(default_factory=list)
    prefix_hit: int = 0
    draft_cached: int | None = None
    proposal: Proposal | None = None
    target_forwards: int = 0
    draft_forwards: int = 0

    revealed: int = field(init=False, default=0)
    drafted: int = field(init=False, default=0)
    accepted: int = field(init=False, default=0)
    recovered: int = field(init=False, default=0)
    bonus: int = field(init=False, default=0)
    fallback: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Count the tokens of all blocks, since several readers of each round ask for them."""
        for block in self.blocks:
            self.revealed += len(block.reveals)
            self.drafted += block.drafted
            self.fallback += block.fallback
            if self.drafted:
                self.accepted += block.kinds.count("accepted")
                self.recovered += block.kinds.count("recovered")
                self.bonus += block.kinds.count("bonus")


@dataclass(slots=True)
class Verdicts:
    """The target's answer to one round of the whole batch: a verdict by sequence id, and what the round cost.

    `target_s` and `draft_s` are seconds inside the models' calls. `ahead_s` is the part of `draft_s` that was spent
    before the round began.
    """

    items: dict[str, Verdict]
    target_forwards: int
    target_rows: int
    target_s: float
    draft_forwards: int = 0
    draft_rows: int = 0
    draft_s: float = 0.0
    ahead_s: float = 0.0
