"""What a client asks for and what it gets: decoding settings, requests, outputs, events and counters.

A *block* is B positions that are denoised together. *Open* positions still hold the mask token. A *reveal* gives a
position its token. An *offset* is a position inside its block. A *round* is propose → verify → accept, once.
"""

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from simsd.errors import RequestError
from simsd.messages.options import check_options, check_range, option

Method = Literal["vanilla", "simsd", "exact", "s2d2"]
Drafter = Literal["model", "self"]
Remasking = Literal["static", "dynamic", "sequential", "entropy"]
Layout = Literal["paired", "branches"]
Fallback = Literal["target", "redraft"]
Routing = Literal["span", "score", "hysteresis", "ucb"]
RoutingScore = Literal["margin", "entropy"]
FinishReason = Literal["stop", "length"]
RevealKind = Literal["accepted", "recovered", "bonus", "denoised"]
"""How a position got its token. accepted: the draft's token. recovered: the target's token in place of a rejected one.
bonus: the target's token at a position that was not drafted. denoised: the target's token without a draft."""

MAX_BIAS = 100.0
MAX_STOPS = 4
MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class DecodeParams:
    """How one request is decoded. The help of each option says what it does; docs/algorithm.md explains the methods.

    For `gamma` (1..B), `draft_steps` (1..gamma), `steps` (1..B) and `row_budget`, 0 stands for a default that depends
    on the block size B; `resolve` fills it in. The draft proposes its surest positions first, or the leftmost ones with
    sequential remasking. `logit_bias` are pairs of a token id and the number that is added to its logit, in both
    models. `routing_cost` is in tokens. `adaptive` (simsd/loop/adaptive.py) does not change the text of exact; with it,
    the text of simsd depends on measured times. A value that is not allowed raises a `RequestError`, and so does one
    that could not do anything with the method's other options. Options of another method are passed over.
    """

    method: Method = option("simsd", "how blocks are decoded")
    max_tokens: int = option(256, "length of an answer at most, in tokens", low=1, place="body")
    temperature: float = option(0.0, "temperature of sampling; 0 is greedy", low=0, high=100, place="body")
    top_p: float = option(
        1.0, "sample from the smallest set of tokens with this probability; 1 is off", above=0, high=1, place="body"
    )
    top_k: int = option(0, "sample from the k best tokens; 0 is off", low=0, place="body")
    min_p: float = option(
        0.0,
        "leave out tokens below this part of the likeliest one's probability; 0 is off",
        low=0,
        high=1,
        place="body",
    )
    seed: int = option(
        0, "same seed, same answer; whatever else is in the batch", low=-(2**63), high=2**63 - 1, place="body"
    )
    stop: tuple[str, ...] = option((), f"end the answer before this text (up to {MAX_STOPS} times)", place="body")
    min_tokens: int = option(0, "nothing ends the answer before so many tokens", low=0, place="body")
    logit_bias: tuple[tuple[int, float], ...] = option(
        (),
        f"add this to the logit of a token id, {-MAX_BIAS:g} to {MAX_BIAS:g} (may be given several times)",
        place="body",
    )
    ignore_eos: bool = option(False, "go on to max_tokens", place="body")
    gamma: int = option(0, "tokens drafted a round, 1 to the block size; 0: the block size", low=0)
    draft_steps: int = option(0, "forwards of a draft model a round, 1 to gamma; 0: gamma", low=0)
    lookahead: int = option(
        0, "simsd and exact: blocks drafted beyond the open one, each as if those before it stood", low=0, high=8
    )
    layout: Layout = option("paired", "simsd: one pass over paired rows, or branches, which removes its approximation")
    fallback: Fallback = option(
        "redraft",
        "simsd with a draft model: who fills a block with fewer than gamma open positions; with target, the paper's "
        "rule, there is no bonus",
    )
    remasking: Remasking = option(
        "static", "which positions the target reveals in a step; with sequential, simsd drafts from the left, too"
    )
    steps: int = option(0, "denoising steps a block, 1 to the block size; 0: the block size", low=0)
    threshold: float = option(0.9, "dynamic remasking: reveal all positions above this probability", low=0, high=1)
    entropy_bound: float = option(
        0.35, "entropy remasking: reveal positions up to this sum of entropies, in nats", low=0
    )
    row_budget: int = option(0, "exact: rows of one verification at most; 0: 8 x block size", low=0)
    draft_top_k: int = option(64, "the draft samples from its k best tokens", low=1, place="process")
    drafter: Drafter = option(
        "model", "simsd and exact: who drafts, the draft model, or the target itself from its last forward"
    )
    routing: Routing = option("span", "s2d2: when a span is verified")
    routing_score: RoutingScore = option(
        "margin", "s2d2: how the chance of acceptance is guessed, for routing score and hysteresis"
    )
    routing_cost: float = option(
        1.0, "s2d2: tokens that a verification must be expected to bring, with routing score and hysteresis", low=0
    )
    adaptive: bool = option(
        False,
        "simsd and exact with a draft model: gamma, draft steps and row budget are limits, and each round takes what "
        "is fastest",
    )

    def __post_init__(self) -> None:
        check_options(self)
        check_range("min_tokens", self.min_tokens, 0, self.max_tokens)
        for _, bias in self.logit_bias:
            check_range("logit_bias", bias, -MAX_BIAS, MAX_BIAS)
        if len(dict(self.logit_bias)) < len(self.logit_bias):
            [(token, _)] = Counter(token for token, _ in self.logit_bias).most_common(1)
            raise RequestError(f"logit_bias names token id {token} more than once", "logit_bias")
        for name, (neutral, reason) in idle(self.method, self.drafter, self.adaptive).items():
            if getattr(self, name) != neutral:
                allowed = str(neutral).lower()
                raise RequestError(f"{name} must be {allowed} {reason}; got {getattr(self, name)!r}", name)
        if len(self.stop) > MAX_STOPS or not all(text and isinstance(text, str) for text in self.stop):
            raise RequestError(f"stop takes up to {MAX_STOPS} non-empty strings", "stop")

    @property
    def foresees_target(self) -> bool:
        """Whether a draft is to foresee the target's own steps, noise and all; else rejection sampling judges it."""
        return self.method == "exact"

    @property
    def routes(self) -> bool:
        """Whether the loop decides, after each draft step, if its span is verified (S2D2)."""
        return self.method == "s2d2"

    @property
    def needs_draft(self) -> bool:
        """Whether a draft model takes part in decoding."""
        return self.method in ("simsd", "exact") and self.drafter == "model"

    @property
    def drafts_itself(self) -> bool:
        """Whether the target drafts for itself, from its own last forward."""
        return self.routes or (self.method in ("simsd", "exact") and self.drafter == "self")

    @property
    def chain_length(self) -> int:
        """The most blocks of a proposal: the open one, and those beyond it.

        A draft model drafts each of them. A target that drafts for itself has mask rows for one block at most.
        """
        if self.needs_draft:
            return 1 + self.lookahead
        return 2 if self.drafts_itself and not self.routes and self.lookahead else 1

    def resolve(self, block_size: int) -> "DecodeParams":
        """Return the settings with every default filled in for this block size.

        A `RequestError` names the field that does not fit the block size.
        """
        check_range("gamma", self.gamma or 1, 1, block_size)
        gamma = self.gamma or block_size
        check_range("draft_steps", self.draft_steps or 1, 1, gamma)
        check_range("steps", self.steps or 1, 1, block_size)
        check_range("row_budget", self.row_budget or block_size, block_size)
        return dataclasses.replace(
            self,
            temperature=self.temperature if self.temperature >= 1e-5 else 0.0,  # A lower one would overflow logits.
            gamma=gamma,
            draft_steps=self.draft_steps or gamma,
            steps=self.steps or block_size,
            row_budget=self.row_budget or 8 * block_size,
        )


def idle(method: str, drafter: str, adaptive: bool) -> dict[str, tuple[Any, str]]:
    """Return the options that could not do anything beside these: the value that is allowed, and the reason."""
    if method not in ("simsd", "exact"):
        return {}
    found: dict[str, tuple[Any, str]] = {}
    if drafter == "self":
        found["adaptive"] = (False, "with drafter self, which has no draft forwards to choose")
    if method == "simsd" and drafter == "self":
        found["fallback"] = ("redraft", "with drafter self, with which no draft model could draft again")
    elif method == "simsd" and adaptive:
        found["fallback"] = ("redraft", "with adaptive, which chooses when the target goes on alone")
    return found


@dataclass(frozen=True, slots=True)
class Report:
    """What a request reports beside the text.

    logprobs: the number of alternatives for each token, or None for no log-probabilities at all.
    prompt: whether the prompt's tokens get log-probabilities, too, as the target would reveal them from left to right.
    The prompt is then worked through block by block.
    events: whether every round is reported as it happens, even if it makes no token visible.
    """

    logprobs: int | None = None
    prompt: bool = False
    events: bool = False

    def __post_init__(self) -> None:
        if self.logprobs is not None:
            check_range("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        elif self.prompt:
            raise RequestError("logprobs of the prompt need logprobs", "logprobs")


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The target's log-probability of a token, in nats, in the state of the block in which it was revealed.

    The distribution is the model's own: after logit_bias and min_tokens, but before temperature and filters. For a
    token of the prompt it is before logit_bias and min_tokens, too. `top` are the likeliest tokens as (token id,
    log-probability), best first, whether or not the revealed token is one of them.
    """

    logprob: float
    top: list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class RoundEvent:
    """One round of one sequence. Indices count the answer's tokens from 0; tokens of the prompt have negative indices.

    The block takes the indices `start` to `start` + B - 1. `drafted` are (index, token id) in step order. `reveals` are
    (index, token id, kind) in the order in which they were revealed, including those after the end of the answer. Both
    are empty in a round of s2d2 that drafted the span which the next round verifies.
    """

    round: int
    start: int
    drafted: list[tuple[int, int]]
    reveals: list[tuple[int, int, RevealKind]]


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    prompt_ids: the token ids of the rendered prompt, which is not empty and has no mask token.
    stream_interval: the least number of tokens in a message of the stream, except for the first and the last message.
    With 0 the whole answer is one message.
    """

    request_id: str
    prompt_ids: list[int]
    params: DecodeParams
    report: Report = field(default_factory=Report)
    stream_interval: int = 1


@dataclass(slots=True)
class Stats:
    """The counters of one request.

    cached_tokens: tokens of the prompt whose KV came from the prefix cache. target_forwards, draft_forwards: the model
    calls that the request had rows in. queue_s, prefill_s, decode_s: seconds in the queue, of the prompt, and of the
    answer.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    rounds: int = 0
    target_forwards: int = 0
    draft_forwards: int = 0
    drafted: int = 0
    accepted: int = 0
    recovered: int = 0
    bonus: int = 0
    fallback_tokens: int = 0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    accept_histogram: dict[int, int] = field(default_factory=dict)
    """How many speculative rounds accepted 0, 1, 2, ... tokens."""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(slots=True)
class Output:
    """What became visible since the last output of the same request.

    `finish_reason` and `stats` are set in the last output. If the request asks for them, `logprobs` has an entry for
    each token, `events` has the rounds since the last output, and `prompt_logprobs` of the first output has an entry
    for each token of the prompt.
    """

    token_ids: list[int]
    text: str
    finish_reason: FinishReason | None = None
    stats: Stats | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    events: list[RoundEvent] = field(default_factory=list)

    def add(self, output: "Output") -> None:
        """Append the next output of the same request."""
        self.token_ids += output.token_ids
        self.text += output.text
        self.logprobs += output.logprobs
        self.prompt_logprobs += output.prompt_logprobs
        self.events += output.events
        self.finish_reason, self.stats = output.finish_reason, output.stats
