"""How many pairs a load needs, and what it may expect of them: arithmetic, no torch. docs/capacity.md derives it.

    speculation → rounds of a block → rows of a forward → seconds of a round → requests that a pair serves → pairs

A forward's cost is a roofline, or a line that was fitted to measured ones. Everything is in expectation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from simsd.errors import ConfigError
from simsd.models.config import ModelConfig

MEMORY_SHARE = 0.9
"""Of a GPU, for weights and KV; the rest is for activations, CUDA's context and fragments."""


def _check(name: str, value: float, low: float, high: float = math.inf) -> None:
    if not low <= value <= high:  # also refuses NaN
        allowed = f"between {low:g} and {high:g}" if high < math.inf else f"at least {low:g}"
        raise ConfigError(f"{name} must be {allowed}; got {value:g}")


@dataclass(frozen=True, slots=True)
class Gpu:
    """Figures of a data sheet: bytes/s of memory, dense FLOP/s in bfloat16, bytes of memory."""

    bandwidth: float
    flops: float
    memory: float

    def __post_init__(self) -> None:
        for name in ("bandwidth", "flops", "memory"):
            _check(name, getattr(self, name), 1)


GPUS = {
    "a100": Gpu(2.039e12, 312e12, 80e9),
    "b200": Gpu(8.0e12, 2250e12, 180e9),
    "h100": Gpu(3.35e12, 989e12, 80e9),
    "h200": Gpu(4.8e12, 989e12, 141e9),
    "l4": Gpu(0.3e12, 121e12, 24e9),
    "l40s": Gpu(0.864e12, 362e12, 48e9),
}


class ForwardCost(Protocol):
    """Seconds of one forward: `rows` of `sequences` over a cached `context` each; `logits` of the rows want logits."""

    def seconds(self, rows: float, logits: float, sequences: float, context: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Roofline:
    """Whatever takes longest of reading memory, multiplying, and launching kernels; the three overlap.

    `bandwidth_share` and `flops_share` are what is reached of the data sheet; `launch_s` is for a layer.
    """

    model: ModelConfig
    gpu: Gpu
    weight_bytes: int = 2
    bandwidth_share: float = 0.7
    flops_share: float = 0.5
    launch_s: float = 250e-6

    def __post_init__(self) -> None:
        _check("bandwidth_share", self.bandwidth_share, 0.01, 1)
        _check("flops_share", self.flops_share, 0.01, 1)
        _check("launch_s", self.launch_s, 0)

    @property
    def stored_bytes(self) -> int:
        """All weights."""
        return self.model.parameters * self.weight_bytes

    @property
    def kv_bytes(self) -> int:
        """Of one token: a key and a value in every layer."""
        shape = self.model
        return 2 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim * self.weight_bytes

    @property
    def layer_weights(self) -> int:
        """Weights that every row is multiplied with: all but the embedding and the head."""
        shape = self.model
        return shape.parameters - shape.vocab_size * shape.hidden_size * (1 if shape.tie_word_embeddings else 2)

    def read_bytes(self, sequences: float, context: float) -> float:
        """Layers and head once, each sequence's KV once."""
        head = self.model.vocab_size * self.model.hidden_size
        return (self.layer_weights + head) * self.weight_bytes + sequences * context * self.kv_bytes

    def operations(self, rows: float, logits: float, context: float) -> float:
        """FLOPs: two for each weight and row, and attention's two products over the context."""
        shape = self.model
        attention = 4 * shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim * context
        return rows * (2 * self.layer_weights + attention) + logits * 2 * shape.vocab_size * shape.hidden_size

    def seconds(self, rows: float, logits: float, sequences: float, context: float) -> float:
        reading = self.read_bytes(sequences, context) / (self.gpu.bandwidth * self.bandwidth_share)
        multiplying = self.operations(rows, logits, context) / (self.gpu.flops * self.flops_share)
        return max(reading, multiplying, self.model.num_hidden_layers * self.launch_s)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A line through measured forwards."""

    forward_s: float
    row_s: float

    @classmethod
    def to(cls, measured: Sequence[tuple[int, int, float]]) -> "Fitted":
        """Least squares over calls of (forwards, rows, seconds); neither part below 0. `ConfigError` for too few."""
        if len(measured) < 2:
            raise ConfigError(f"a line needs two measured calls; there are {len(measured)}")
        counts = np.array([(forwards, rows) for forwards, rows, _ in measured], dtype=float)
        seconds = np.array([seconds for _, _, seconds in measured])
        forward_s, row_s = np.linalg.lstsq(counts, seconds, rcond=None)[0]
        if forward_s < 0:
            forward_s, row_s = 0.0, counts[:, 1] @ seconds / (counts[:, 1] @ counts[:, 1])
        elif row_s < 0:
            forward_s, row_s = counts[:, 0] @ seconds / (counts[:, 0] @ counts[:, 0]), 0.0
        return cls(float(forward_s), float(row_s))

    def seconds(self, rows: float, logits: float, sequences: float, context: float) -> float:
        return self.forward_s + self.row_s * rows


@dataclass(frozen=True)
class Speculation:
    """`simsd` with paired rows and redrafting, as a chain over a block's open positions.

    acceptance: probability that a drafted token stands, given that those before it did; accepted tokens over judged
    ones. With gamma 0 it is `vanilla` at `steps` denoising steps a block.
    """

    block_size: int
    gamma: int
    draft_steps: int
    acceptance: float
    steps: int = 0

    def __post_init__(self) -> None:
        _check("block_size", self.block_size, 1, 64)
        _check("gamma", self.gamma, 0, self.block_size)
        _check("draft_steps", self.draft_steps, min(1, self.gamma), self.gamma)
        _check("acceptance", self.acceptance, 0, 1)
        _check("steps", self.steps or self.block_size, 1, self.block_size)

    def after_round(self, open_positions: int) -> dict[int, float]:
        """Probabilities of the open positions that a round leaves."""
        if not self.gamma:
            return {max(0, open_positions - -(-self.block_size // (self.steps or self.block_size))): 1.0}
        gamma = min(self.gamma, open_positions)
        left: dict[int, float] = {}
        for accepted in range(gamma):  # then a rejection, and the target's own token
            rejected = self.acceptance**accepted * (1 - self.acceptance)
            left[open_positions - accepted - 1] = left.get(open_positions - accepted - 1, 0.0) + rejected
        whole = max(0, open_positions - gamma - 1)  # with the bonus token, if a position is left for it
        left[whole] = left.get(whole, 0.0) + self.acceptance**gamma
        return left

    @cached_property
    def visits(self) -> dict[int, float]:
        """Open positions at a round's begin -> rounds of a block that begin so."""
        visits = {self.block_size: 1.0}
        for open_positions in range(self.block_size, 0, -1):
            for left, probability in self.after_round(open_positions).items():
                if left:
                    visits[left] = visits.get(left, 0.0) + visits.get(open_positions, 0.0) * probability
        return visits

    @property
    def rounds(self) -> float:
        """Of a block."""
        return sum(self.visits.values())

    @property
    def tokens_per_round(self) -> float:
        return self.block_size / self.rounds

    @property
    def open_positions(self) -> float:
        """Mean over rounds: the rows that want logits."""
        return sum(open_positions * visits for open_positions, visits in self.visits.items()) / self.rounds

    @property
    def verify_rows(self) -> float:
        """Of a sequence and round: the block's own rows, one beside each drafted one, and the last block's commit."""
        drafted = sum(min(self.gamma, open_positions) * visits for open_positions, visits in self.visits.items())
        return self.block_size + (drafted + self.block_size) / self.rounds

    @property
    def draft_rows(self) -> float:
        """Of a sequence and round: the block for each draft step, and the last block's commit."""
        if not self.gamma:
            return 0.0
        steps = sum(self._draft_steps(open_positions) * visits for open_positions, visits in self.visits.items())
        return self.block_size * (steps + 1) / self.rounds

    def draft_forwards(self, sequences: float) -> float:
        """Of a round: as many as the sequence with the most draft steps wants."""
        shares: dict[int, float] = {}
        for open_positions, visits in self.visits.items():
            steps = self._draft_steps(open_positions)
            shares[steps] = shares.get(steps, 0.0) + visits / self.rounds
        most = max(shares)
        at_most = [sum(share for steps, share in shares.items() if steps <= limit) for limit in range(most)]
        return sum(1 - share**sequences for share in at_most)

    def _draft_steps(self, open_positions: int) -> int:
        return min(self.draft_steps, self.gamma, open_positions)


@dataclass(frozen=True, slots=True)
class Load:
    """Requests/s of all pairs together, and tokens of a request. `cached_tokens` of the prompt are in the cache."""

    rate: float
    prompt_tokens: int
    answer_tokens: int
    cached_tokens: int = 0

    def __post_init__(self) -> None:
        _check("rate", self.rate, 0)
        _check("prompt_tokens", self.prompt_tokens, 1)
        _check("answer_tokens", self.answer_tokens, 1)
        _check("cached_tokens", self.cached_tokens, 0, self.prompt_tokens)


@dataclass(frozen=True)
class Pair:
    """One target, its draft (None for `vanilla`) and how they work. `overhead_s` of a round is transport and loop."""

    target: ForwardCost
    draft: ForwardCost | None
    speculation: Speculation
    overhead_s: float = 2e-3
    prefill_rows: int = 256

    def __post_init__(self) -> None:
        _check("overhead_s", self.overhead_s, 0)
        _check("prefill_rows", self.prefill_rows, 1)

    def round_s(self, running: float, context: float, prefill: float = 0.0) -> float:
        """Seconds of a round of `running` sequences; `prefill` rows of a prompt come on top, in both models."""
        how = self.speculation
        logits = running * how.open_positions
        seconds = self.overhead_s + self.target.seconds(running * how.verify_rows + prefill, logits, running, context)
        if self.draft is not None and how.gamma:
            forwards = how.draft_forwards(running)
            rows = running * how.draft_rows / forwards
            plain = self.draft.seconds(rows, logits, running, context)
            first = self.draft.seconds(rows + prefill, logits, running, context)
            seconds += first + (forwards - 1) * plain
        return seconds

    def request_s(self, running: float, load: Load) -> float:
        """From admission to the last token with `running` in flight: its own rounds, and all prompts that fall in."""
        context = load.prompt_tokens + load.answer_tokens / 2
        decode, chunks, long_s = self._rounds(running, load, context)
        short_s = self.round_s(running, context)
        return decode * short_s + chunks * long_s + max(0.0, running - 1) * chunks * (long_s - short_s)

    def first_token_s(self, running: float, load: Load) -> float:
        """From arrival: half a round until the next begins, the prompt, a round."""
        context = float(load.prompt_tokens)
        _, chunks, long_s = self._rounds(running, load, context)
        return chunks * long_s + 1.5 * self.round_s(running, context)

    def requests_per_s(self, running: float, load: Load) -> float:
        """With always `running` in flight."""
        return running / self.request_s(running, load)

    def _rounds(self, running: float, load: Load, context: float) -> tuple[float, int, float]:
        """Rounds of the answer, rounds of the prompt, and seconds of one of the latter."""
        new = load.prompt_tokens - load.cached_tokens
        chunks = math.ceil(new / self.prefill_rows)
        long_s = self.round_s(running, context, new / chunks) if chunks else 0.0
        return load.answer_tokens / self.speculation.tokens_per_round, chunks, long_s

    def running_at(self, rate: float, most: int, load: Load) -> float:
        """Requests in flight when `rate` arrive a second (Little's law); at least 1, as a lone one is not faster."""
        low, high = 1.0, float(most)
        if self.requests_per_s(low, load) >= rate:
            return low
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self.requests_per_s(middle, load) >= rate else (middle, high)
        return high


@dataclass(frozen=True, slots=True)
class Memory:
    """Of a pair, in bytes, and the KV tokens that are left room for in each model's pool."""

    target_weights: int
    draft_weights: int
    target_kv: int
    draft_kv: int
    kv_tokens: int

    @classmethod
    def of(cls, target: Roofline, draft: Roofline | None, shared: bool) -> "Memory":
        """shared: both models on one GPU. `ConfigError` if weights alone do not fit."""
        room = target.gpu.memory * MEMORY_SHARE
        weights, kv = target.stored_bytes, target.kv_bytes
        if draft is None:
            tokens = (room - weights) / kv
        elif shared:
            tokens = (room - weights - draft.stored_bytes) / (kv + draft.kv_bytes)
        else:
            tokens = min((room - weights) / kv, (draft.gpu.memory * MEMORY_SHARE - draft.stored_bytes) / draft.kv_bytes)
        if tokens < 1:
            total = weights + (draft.stored_bytes if draft else 0)
            raise ConfigError(
                f"weights of {total / 1e9:.1f} GB leave no room for KV in {target.gpu.memory / 1e9:.0f} GB"
            )
        return cls(weights, draft.stored_bytes if draft else 0, kv, draft.kv_bytes if draft else 0, int(tokens))


@dataclass(frozen=True)
class Plan:
    """What was found. Requests/s and tokens/s are of all pairs, `running` and `most_running` of one.

    first_token_s and request_s are without time in the queue, which stays small as long as utilisation is.
    """

    pairs: int
    running: float
    most_running: int
    utilisation: float
    requests_per_s: float
    most_requests_per_s: float
    tokens_per_s: float
    first_token_s: float
    request_s: float
    round_s: float
    tokens_per_round: float
    user_tokens_per_s: float
    vanilla_request_s: float = field(default=0.0)


def plan(pair: Pair, load: Load, most_running: int, headroom: float = 0.8, latency_s: float | None = None) -> Plan:
    """The fewest pairs that take the load at `headroom` of what they can, and a request in `latency_s` if given.

    `ConfigError` if no number of pairs is that fast.
    """
    _check("headroom", headroom, 0.01, 1)
    if most_running < 1:
        raise ConfigError("not even one request's KV fits; use a larger GPU, or shorter requests")
    alone = pair.request_s(1, load)
    if latency_s is not None and alone > latency_s:
        raise ConfigError(f"latency must be at least {alone:.3g} s, which a request takes alone; got {latency_s:g}")
    most = max(pair.requests_per_s(n, load) for n in {1, most_running})
    pairs = max(1, math.ceil(load.rate / (headroom * most)))
    while (
        latency_s is not None
        and pair.request_s(pair.running_at(load.rate / pairs, most_running, load), load) > latency_s
    ):
        pairs += 1
    running = pair.running_at(load.rate / pairs, most_running, load)
    request_s = pair.request_s(running, load)
    alone_target = Speculation(pair.speculation.block_size, 0, 0, 0.0)
    vanilla = Pair(pair.target, None, alone_target, pair.overhead_s, pair.prefill_rows)
    context = load.prompt_tokens + load.answer_tokens / 2
    return Plan(
        pairs=pairs,
        running=running,
        most_running=most_running,
        utilisation=load.rate / (pairs * most),
        requests_per_s=load.rate,
        most_requests_per_s=pairs * most,
        tokens_per_s=load.rate * load.answer_tokens,
        first_token_s=pair.first_token_s(running, load),
        request_s=request_s,
        round_s=pair.round_s(running, context),
        tokens_per_round=pair.speculation.tokens_per_round,
        user_tokens_per_s=load.answer_tokens / request_s,
        vanilla_request_s=vanilla.request_s(running, load),
    )
