"""What the loop and the workers say to each other in a round: work, proposals and verdicts."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simsd.messages.request import DecodeParams, Report, RevealKind, TokenLogprob


@dataclass(slots=True)
class Work:
    """One sequence's part of a round, for one worker; enough to rebuild all the worker knows of it.

    The worker holds KV for `start` tokens, or says what it holds and does no more. `commit` are the whole blocks that
    follow. While a prompt is prefilled `block` is empty and `commit_limit` tokens of them are committed at most; else
    at most one block is owed, and the open block comes in the same forward: `block` has B ids, `mask_token_id` where
    open; `step` denoising steps were taken in it. `gamma` > 0 asks for that many drafted tokens (draft) or expects them
    (target); 0 makes the target denoise by itself, unless `proposal` has what it drafted in its own last forward.
    `prompt_tokens` is where the answer begins; `forced` are tokens of
    the prompt that the target reveals one by one from the left, to know their log-probabilities.
    """

    seq_id: str
    params: DecodeParams
    total_tokens: int
    start: int
    commit: list[int]
    commit_limit: int
    block: list[int]
    step: int
    gamma: int
    prompt_tokens: int = 0
    proposal: "Proposal | None" = None
    forced: list[int] = field(default_factory=list)
    report: Report = field(default_factory=Report)


@dataclass(slots=True)
class Proposal:
    """Drafted tokens in step order.

    offsets, tokens: [g]. confidence: [g], the draft's probability for what it revealed (position's best token); in
    s2d2 the chance that the token will be accepted.
    q_ids, q_probs: [g, k], the distribution each token was sampled from; empty (k = 0) at temperature 0.
    """

    offsets: list[int]
    tokens: list[int]
    confidence: list[float]
    q_ids: NDArray[np.int64]
    q_probs: NDArray[np.float32]


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
class Verdict:
    """What the target decided. `reveals` are (offset, token) in order; `steps` denoising steps were taken.

    `kinds` has an entry for each reveal; so has `logprobs`, and `proposed` has the draft's (offset, token) in step
    order, if the request reports them. `rows` are the reveals' logits rows, until the target is done with them.
    `proposal` is what the target drafts for itself.
    `cached` tokens have KV in the target now, of them `prefix_hit` came from its prefix cache. `draft_cached` is the
    same of the draft, None if it took no part. The forwards are those that the sequence had rows in.
    """

    cached: int
    prefix_hit: int = 0
    draft_cached: int | None = None
    proposal: Proposal | None = None
    target_forwards: int = 0
    draft_forwards: int = 0
    reveals: list[tuple[int, int]] = field(default_factory=list)
    kinds: list[RevealKind] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    proposed: list[tuple[int, int]] = field(default_factory=list)
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    recovered: int = 0
    bonus: int = 0
    fallback: int = 0

    def reveal(self, offset: int, token: int, kind: RevealKind, row: int) -> None:
        """Add a reveal and count it by its kind."""
        self.reveals.append((offset, token))
        self.kinds.append(kind)
        self.rows.append(row)
        self.accepted += kind == "accepted"
        self.recovered += kind == "recovered"
        self.bonus += kind == "bonus"


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
