"""What a client asks for and what it is told: decoding settings, requests, outputs, events and counters.

Words: a *block* is B positions denoised together; *open* positions still hold the mask token; a *reveal* gives a
position its token; *offset* is a position inside its block; a *round* is propose → verify → accept, once.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from simsd.errors import RequestError

Method = Literal["vanilla", "simsd", "exact", "s2d2"]
Drafter = Literal["model", "self"]
Remasking = Literal["static", "dynamic", "sequential", "entropy"]
Layout = Literal["paired", "branches"]
Fallback = Literal["target", "redraft"]
Routing = Literal["span", "score", "hysteresis", "ucb"]
RoutingScore = Literal["margin", "entropy"]
FinishReason = Literal["stop", "length"]
RevealKind = Literal["accepted", "recovered", "bonus", "denoised"]
"""How a position got its token: the draft's, the target's in its place, the target's beside it, or without a draft."""


CHOICES = {
    "method": get_args(Method),
    "remasking": get_args(Remasking),
    "layout": get_args(Layout),
    "fallback": get_args(Fallback),
    "drafter": get_args(Drafter),
    "routing": get_args(Routing),
    "routing_score": get_args(RoutingScore),
}


MAX_BIAS = 100.0


MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class DecodeParams:
    """How one request is decoded. 0 means "the default" for gamma, draft_steps, steps and row_budget: see `resolve`.

    temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off; min_p is relative to the likeliest token. No EOS and
    no stop string ends an answer of less than `min_tokens`. `logit_bias` are (token id, what is added to its logit, in
    the draft too). `steps` denoising steps fill a block (1..B). `gamma` tokens are drafted a round (1..B) in
    `draft_steps` draft forwards (1..gamma), the surest first, or from the left with sequential remasking. `threshold`
    (dynamic remasking) is a probability, `entropy_bound` (entropy remasking) is in nats. `row_budget` bounds the rows
    of one `exact` verification. With `drafter` self the target's last forward is the draft. `routing`, `routing_score`
    and `routing_cost` (in tokens) are s2d2's. With `adaptive`, gamma, draft_steps and row_budget are limits, and each
    round takes what is fastest (loop/adaptive.py): the text of exact stays the same, that of simsd then depends on
    measured times. It matters where a draft model takes part.
    """

    method: Method = "simsd"
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    min_tokens: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False
    gamma: int = 0
    draft_steps: int = 0
    layout: Layout = "paired"
    fallback: Fallback = "redraft"
    remasking: Remasking = "static"
    steps: int = 0
    threshold: float = 0.9
    entropy_bound: float = 0.35
    row_budget: int = 0
    draft_top_k: int = 64
    drafter: Drafter = "model"
    routing: Routing = "span"
    routing_score: RoutingScore = "margin"
    routing_cost: float = 1.0
    adaptive: bool = False

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise RequestError(f"{name} must be one of {', '.join(allowed)}; got {getattr(self, name)!r}", name)
        _check("max_tokens", self.max_tokens, 1, None)
        _check("temperature", self.temperature, 0, 100)
        _check("top_k", self.top_k, 0, None)
        _check("min_p", self.min_p, 0, 1)
        _check("min_tokens", self.min_tokens, 0, self.max_tokens)
        for _, bias in self.logit_bias:
            _check("logit_bias", bias, -MAX_BIAS, MAX_BIAS)
        _check("draft_top_k", self.draft_top_k, 1, None)
        _check("seed", self.seed, -(2**63), 2**63 - 1)
        _check("threshold", self.threshold, 0, 1)
        _check("entropy_bound", self.entropy_bound, 0, None)
        _check("routing_cost", self.routing_cost, 0, None)
        if not 0 < self.top_p <= 1:
            raise RequestError(f"top_p must be above 0 and at most 1; got {self.top_p}", "top_p")
        if len(self.stop) > 4 or any(not s for s in self.stop):
            raise RequestError("stop takes up to 4 non-empty strings", "stop")

    @property
    def needs_draft(self) -> bool:
        """Whether a draft model takes part."""
        return self.method in ("simsd", "exact") and self.drafter == "model"

    @property
    def drafts_itself(self) -> bool:
        """Whether the target's own last forward is the draft."""
        return self.method == "s2d2" or (self.method in ("simsd", "exact") and self.drafter == "self")

    def resolve(self, block_size: int) -> "DecodeParams":
        """The same with every default filled in and checked against the block size; `RequestError` names the field."""
        _check("gamma", self.gamma or 1, 1, block_size)
        gamma = self.gamma or block_size
        _check("draft_steps", self.draft_steps or 1, 1, gamma)
        _check("steps", self.steps or 1, 1, block_size)
        _check("row_budget", self.row_budget or block_size, block_size, None)
        return dataclasses.replace(
            self,
            temperature=self.temperature if self.temperature >= 1e-5 else 0.0,  # below, logits would overflow
            gamma=gamma,
            draft_steps=self.draft_steps or gamma,
            steps=self.steps or block_size,
            row_budget=self.row_budget or 8 * block_size,
        )


def _check(name: str, value: float, low: float, high: float | None) -> None:
    if not (value >= low and (high is None or value <= high)):  # also refuses NaN
        allowed = f"at least {low}" if high is None else f"between {low} and {high}"
        raise RequestError(f"{name} must be {allowed}; got {value}", name)


@dataclass(frozen=True, slots=True)
class Report:
    """What to tell beside the text. `logprobs`: so many alternatives for each token (None: no logprobs at all).

    `prompt`: logprobs of the prompt's tokens too, as the target would reveal them from left to right; the prompt is
    then worked through block by block. `events`: every round as it happens, also where it makes nothing visible.
    """

    logprobs: int | None = None
    prompt: bool = False
    events: bool = False

    def __post_init__(self) -> None:
        if self.logprobs is not None:
            _check("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        elif self.prompt:
            raise RequestError("logprobs of the prompt need logprobs", "logprobs")


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The target's log-probability (nats) of a token in the state of the block that it was revealed in.

    Of the model's own distribution: after logit_bias and min_tokens, before temperature and filters. `top` are the
    likeliest (token id, log-probability), best first, whether or not the token is one of them.
    """

    logprob: float
    top: list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class RoundEvent:
    """One round of one sequence. An index counts the answer's tokens from 0; a prompt's tail has negative ones.

    The block takes the indices `start` to `start` + B - 1. `drafted` are (index, token id) in step order; `reveals` are
    (index, token id, kind) in the order in which they were revealed. What lies behind the end of the answer is there.
    """

    round: int
    start: int
    drafted: list[tuple[int, int]]
    reveals: list[tuple[int, int, RevealKind]]


@dataclass(frozen=True, slots=True)
class Request:
    """`prompt_ids` are tokens of a rendered and tokenised prompt; never empty, never the mask token.

    `stream_interval`: tokens that a message of its stream has at least, the first and the last apart; 0: all in one.
    """

    request_id: str
    prompt_ids: list[int]
    params: DecodeParams
    report: Report = field(default_factory=Report)
    stream_interval: int = 1


@dataclass(slots=True)
class Stats:
    """Counters of one request; `forwards` count the model calls that this sequence took part in."""

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
    """Accepted tokens of a speculative round -> number of such rounds."""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(slots=True)
class Output:
    """What became visible since the last one. `stats` comes with the last, where finish_reason is set.

    `logprobs` has an entry for each token, `events` the rounds since the last output, if the request asks for them;
    so has `prompt_logprobs` for each token of the prompt, in the first output.
    """

    token_ids: list[int]
    text: str
    finish_reason: FinishReason | None = None
    stats: Stats | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    events: list[RoundEvent] = field(default_factory=list)

    def add(self, output: "Output") -> None:
        """What became visible next; its end is the whole's."""
        self.token_ids += output.token_ids
        self.text += output.text
        self.logprobs += output.logprobs
        self.prompt_logprobs += output.prompt_logprobs
        self.events += output.events
        self.finish_reason, self.stats = output.finish_reason, output.stats
