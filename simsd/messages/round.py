"""What the loop and the workers say to each other in a round: work, proposals and verdicts.

A proposal is a list of drafted blocks, and a verdict a list of blocks that were decided; today each has one.
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
    """One sequence's part of a round, for one worker; enough to rebuild all that the worker knows of it.

    The worker holds KV for `start` tokens; if it holds another number, it says so and does no more. `commit` are the
    tokens of the whole blocks that follow. While a prompt is prefilled `block` is None, and at most `commit_limit` of
    them are committed; else at most one block is owed, and the open block comes in the same forward. `gamma` > 0 asks
    the draft for that many tokens, or tells the target to expect them; at 0 the target denoises by itself, unless
    `proposal` has what it drafted in its own last forward. `prompt_tokens` is where the answer begins. `forced` are
    tokens of the prompt that the target reveals one by one from the left, to know their log-probabilities.
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
    """Drafted tokens of one block, in step order.

    offsets, tokens: [g]. confidence: [g], the draft's probability for what it revealed (of the position's best token);
    in s2d2 the chance that the token will be accepted. q_ids, q_probs: [g, k], the distribution that each token was
    sampled from; empty (k = 0) at temperature 0.
    """

    offsets: list[int]
    tokens: list[int]
    confidence: list[float]
    q_ids: NDArray[np.int64]
    q_probs: NDArray[np.float32]

    @classmethod
    def greedy(cls, offsets: list[int], tokens: list[int], confidence: list[float]) -> "DraftedBlock":
        """Without the distributions that rejection sampling reads."""
        count = len(offsets)
        return cls(offsets, tokens, confidence, np.zeros((count, 0), np.int64), np.zeros((count, 0), np.float32))

    def entries(self) -> Iterator[tuple[int, int]]:
        """(offset, token) in step order."""
        return zip(self.offsets, self.tokens, strict=True)


@dataclass(slots=True)
class Proposal:
    """A chain of drafted blocks: the open one, and those behind it, each drafted as if the one before it stood."""

    blocks: list[DraftedBlock]


@dataclass(slots=True)
class Proposals:
    """`items` has a sequence only when its draft is caught up; `cached` says how many tokens the draft holds KV for.

    `took_part` counts each sequence's forwards; `forwards` those of the batch, which neighbours may have made longer.
    Both, and `rows` and `elapsed_s`, have those in which the draft went ahead since the last call; they took `ahead_s`.
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
    """Forwards, rows in them and seconds of some drafting; `took_part` counts the forwards of each sequence."""

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
    """What was drafted for `work`, whose open block follows the tokens of `assumed`, which were not decided yet."""

    work: Work
    assumed: list[int]
    proposal: Proposal

    def serves(self, work: Work) -> bool:
        """Whether `work` asks for just this: the assumed block came to stand, and nothing is revealed after it."""
        then = self.work
        return (
            (work.block, work.gamma, work.params) == (then.block, then.gamma, then.params)
            and work.start + len(work.commit) == then.start + len(then.commit) + len(self.assumed)
            and work.commit[-len(self.assumed) :] == self.assumed
        )


@dataclass(slots=True)
class Ahead:
    """What one call of `propose_ahead` brought: by sequence, with the tokens that each has KV for, and the cost."""

    items: dict[str, DraftedAhead]
    cached: dict[str, int]
    cost: DraftCost

    def proposals(self, batch: list[Work]) -> Proposals | None:
        """As if they had been asked for now; None unless all of `batch` are served."""
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
    """What the target decided of one block.

    `reveals` are (offset, token) in the order of their reveal, `kinds` and, where the request reports them, `logprobs`
    have an entry for each. `steps` denoising steps were taken. `drafted` tokens were looked at; `proposed` are these,
    (offset, token) in step order, if the request reports events. `fallback` tokens of simsd came without a draft.
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
    """What the target decided of a sequence: a verdict for each block of the chain that it came to, in order.

    `proposal` is what the target drafts for itself. `cached` tokens have KV in the target now, of which `prefix_hit`
    came from its prefix cache. `draft_cached` is the same of the draft, None if it took no part. The forwards are those
    that the sequence had rows in.
    """

    cached: int
    blocks: list[BlockVerdict] = field(default_factory=list)
    prefix_hit: int = 0
    draft_cached: int | None = None
    proposal: Proposal | None = None
    target_forwards: int = 0
    draft_forwards: int = 0

    @property
    def revealed(self) -> int:
        """Tokens revealed in all blocks."""
        return sum(len(block.reveals) for block in self.blocks)

    @property
    def drafted(self) -> int:
        return sum(block.drafted for block in self.blocks)

    @property
    def accepted(self) -> int:
        return self._of_kind("accepted")

    @property
    def recovered(self) -> int:
        return self._of_kind("recovered")

    @property
    def bonus(self) -> int:
        return self._of_kind("bonus")

    @property
    def fallback(self) -> int:
        return sum(block.fallback for block in self.blocks)

    def _of_kind(self, kind: RevealKind) -> int:
        return sum(block.kinds.count(kind) for block in self.blocks)


@dataclass(slots=True)
class Verdicts:
    """Of a round. Seconds are those inside the models' calls; of `draft_s`, `ahead_s` were over before it began."""

    items: dict[str, Verdict]
    target_forwards: int
    target_rows: int
    target_s: float
    draft_forwards: int = 0
    draft_rows: int = 0
    draft_s: float = 0.0
    ahead_s: float = 0.0
