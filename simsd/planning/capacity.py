"""How many pairs a load needs, and how fast they serve it. docs/capacity.md derives the formulas.

    speculation → rounds of a block → rows of a forward → seconds of a round → requests that a pair serves → pairs

The cost of a forward is a roofline, or a line that was fitted to measured forwards. All results are expected values.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

from simsd.errors import ConfigError
from simsd.planning.costs import ForwardCost, Roofline, require

MEMORY_SHARE = 0.9
"""The share of a GPU's memory for weights and KV. The rest is for activations, CUDA's context and fragmentation."""


@dataclass(frozen=True)
class Speculation:
    """`simsd` with paired rows and redrafting, as a Markov chain over the number of open positions in a block.

    acceptance: the probability that a drafted token stands if those before it do, that is, accepted tokens over judged
    ones. With gamma 0 it is `vanilla` with `steps` denoising steps a block; 0 steps stand for the block size.
    """

    block_size: int
    gamma: int
    draft_steps: int
    acceptance: float
    steps: int = 0

    def __post_init__(self) -> None:
        require("block_size", self.block_size, 1, 64)
        require("gamma", self.gamma, 0, self.block_size)
        require("draft_steps", self.draft_steps, min(1, self.gamma), self.gamma)
        require("acceptance", self.acceptance, 0, 1)
        require("steps", self.steps or self.block_size, 1, self.block_size)

    def after_round(self, open_positions: int) -> dict[int, float]:
        """Return the probability of each number of open positions that a round can leave."""
        if not self.gamma:
            return {max(0, open_positions - -(-self.block_size // (self.steps or self.block_size))): 1.0}
        gamma = min(self.gamma, open_positions)
        left: dict[int, float] = {}
        for accepted in range(gamma):  # After these comes a rejection, with the target's own token.
            rejected = self.acceptance**accepted * (1 - self.acceptance)
            left[open_positions - accepted - 1] = left.get(open_positions - accepted - 1, 0.0) + rejected
        whole = max(0, open_positions - gamma - 1)  # The bonus token is included if a position is left for it.
        left[whole] = left.get(whole, 0.0) + self.acceptance**gamma
        return left

    @cached_property
    def visits(self) -> dict[int, float]:
        """The expected rounds of a block that begin with each number of open positions."""
        visits = {self.block_size: 1.0}
        for open_positions in range(self.block_size, 0, -1):
            for left, probability in self.after_round(open_positions).items():
                if left:
                    visits[left] = visits.get(left, 0.0) + visits.get(open_positions, 0.0) * probability
        return visits

    @property
    def rounds(self) -> float:
        """The expected rounds of a block."""
        return sum(self.visits.values())

    @property
    def tokens_per_round(self) -> float:
        return self.block_size / self.rounds

    @property
    def open_positions(self) -> float:
        """The mean number of open positions over all rounds. These are the rows that want logits."""
        return sum(open_positions * visits for open_positions, visits in self.visits.items()) / self.rounds

    @property
    def verify_rows(self) -> float:
        """The target's rows for one sequence and round.

        They are the rows of the block, one more for each drafted token, and the commit rows of the last block.
        """
        drafted = sum(min(self.gamma, open_positions) * visits for open_positions, visits in self.visits.items())
        return self.block_size + (drafted + self.block_size) / self.rounds

    @property
    def draft_rows(self) -> float:
        """The draft's rows for one sequence and round: the block at each draft step, and the last block's commit."""
        if not self.gamma:
            return 0.0
        steps = sum(self._draft_steps(open_positions) * visits for open_positions, visits in self.visits.items())
        return self.block_size * (steps + 1) / self.rounds

    def draft_forwards(self, sequences: float) -> float:
        """Return the draft's forwards of a round: as many as the sequence with the most draft steps needs."""
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
    """The load of all pairs together.

    rate: requests/s. prompt_tokens, answer_tokens: of one request. cached_tokens: how many tokens of the prompt are in
    the prefix cache.
    """

    rate: float
    prompt_tokens: int
    answer_tokens: int
    cached_tokens: int = 0

    def __post_init__(self) -> None:
        require("rate", self.rate, 0)
        require("prompt_tokens", self.prompt_tokens, 1)
        require("answer_tokens", self.answer_tokens, 1)
        require("cached_tokens", self.cached_tokens, 0, self.prompt_tokens)


@dataclass(frozen=True)
class Pair:
    """One target, its draft (None for `vanilla`), and how they decode.

    overhead_s: seconds of a round for transport and the loop. prefill_rows: most prompt tokens of one round.
    """

    target: ForwardCost
    draft: ForwardCost | None
    speculation: Speculation
    overhead_s: float = 2e-3
    prefill_rows: int = 256

    def __post_init__(self) -> None:
        require("overhead_s", self.overhead_s, 0)
        require("prefill_rows", self.prefill_rows, 1)

    def round_s(self, running: float, context: float, prefill: float = 0.0) -> float:
        """Return the seconds of a round of `running` sequences and, in both models, `prefill` rows of a prompt."""
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
        """Return the seconds from admission to the last token, if `running` requests are in flight.

        They include the prompts of other requests that fall into the request's rounds.
        """
        context = load.prompt_tokens + load.answer_tokens / 2
        decode, chunks, long_s = self._rounds(running, load, context)
        short_s = self.round_s(running, context)
        return decode * short_s + chunks * long_s + max(0.0, running - 1) * chunks * (long_s - short_s)

    def first_token_s(self, running: float, load: Load) -> float:
        """Return the seconds from arrival to the first tokens: half a round of waiting, the prompt, and one round."""
        context = float(load.prompt_tokens)
        _, chunks, long_s = self._rounds(running, load, context)
        return chunks * long_s + 1.5 * self.round_s(running, context)

    def requests_per_s(self, running: float, load: Load) -> float:
        """Return the requests/s that are served with `running` requests always in flight."""
        return running / self.request_s(running, load)

    def _rounds(self, running: float, load: Load, context: float) -> tuple[float, int, float]:
        """Return the rounds of the answer, the rounds of the prompt, and the seconds of one round of the prompt."""
        new = load.prompt_tokens - load.cached_tokens
        chunks = math.ceil(new / self.prefill_rows)
        long_s = self.round_s(running, context, new / chunks) if chunks else 0.0
        return load.answer_tokens / self.speculation.tokens_per_round, chunks, long_s

    def running_at(self, rate: float, most: int, load: Load) -> float:
        """Return the requests in flight if `rate` requests/s arrive (Little's law); it is from 1 to `most`."""
        low, high = 1.0, float(most)
        if self.requests_per_s(low, load) >= rate:
            return low
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self.requests_per_s(middle, load) >= rate else (middle, high)
        return high


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a pair.

    target_weights, draft_weights: bytes of all weights. target_kv, draft_kv: bytes of one token's KV. kv_tokens: how
    many tokens fit into the KV pool of each model.
    """

    target_weights: int
    draft_weights: int
    target_kv: int
    draft_kv: int
    kv_tokens: int

    @classmethod
    def of(cls, target: Roofline, draft: Roofline | None, shared: bool) -> "Memory":
        """Divide the memory. shared: whether both models are on one GPU. `ConfigError` if no room is left for KV."""
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
    """The result of `plan`.

    requests_per_s, most_requests_per_s and tokens_per_s are those of all pairs together; running and most_running are
    requests in one pair. first_token_s and request_s do not include the time in the queue, which is small if the
    utilisation is low. user_tokens_per_s is the speed that one request sees. vanilla_request_s is the time of a request
    without a draft, with as many requests in flight.
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
    """Return the fewest pairs that serve the load.

    most_running: most requests in flight in one pair. headroom: the highest share of their capacity that is used.
    latency_s: the longest time of a request, if it is given. `ConfigError` if no number of pairs is that fast, or not
    even one request fits.
    """
    require("headroom", headroom, 0.01, 1)
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
