"""Prometheus metrics of a coordinator, exported through Ray.

The loop counts in plain numbers (`simsd.loop.metrics`); once a second their growth is added to Ray's counters. When a
request ends, each histogram that applies to it gets one value. Ray puts `ray_` before every name and `_total` after a
counter's. docs/observability.md explains each metric.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from ray.serve.metrics import Counter, Gauge, Histogram

from deployments.ingress.errors import to_api_error
from simsd.loop.loop import Loop
from simsd.loop.metrics import LoopMetrics, by_step
from simsd.messages.request import Output, Request, Stats
from simsd.messages.worker import PageUse, Role

logger = logging.getLogger(__name__)

EXPORT_S = 1.0
WAIT_BUCKETS_S = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600]
TOKEN_BUCKETS_S = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]

COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "simsd_requests": ("requests that ended, by how", ("outcome", "method")),
    "simsd_request_phase_seconds": ("seconds that finished requests spent in each phase", ("phase",)),
    "simsd_prompt_tokens": ("tokens of prompts worked through", ()),
    "simsd_prefix_hit_tokens": ("of them, tokens whose KV the target had already", ()),
    "simsd_generated_tokens": ("tokens of answers handed out", ()),
    "simsd_rounds": ("rounds, each for all running requests", ()),
    "simsd_sequence_rounds": ("rounds, once for each request in them", ()),
    "simsd_drafted_tokens": ("drafted tokens that were verified, by step", ("step",)),
    "simsd_accepted_tokens": ("drafted tokens that stood, by step", ("step",)),
    "simsd_recovered_tokens": ("tokens of the target in place of a rejected one", ()),
    "simsd_bonus_tokens": ("tokens of the target beside its verdict on a draft", ()),
    "simsd_fallback_tokens": ("tokens that simsd let the target denoise without a draft", ()),
    "simsd_forwards": ("forwards of each model", ("model", "kind")),
    "simsd_rows": ("rows in forwards of each model", ("model",)),
    "simsd_model_seconds": ("seconds inside each model's calls", ("model",)),
}
GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "simsd_running_requests": ("requests that decode now", ()),
    "simsd_waiting_requests": ("requests that wait for a slot or pages", ()),
    "simsd_pages": ("KV pages of each model", ("model", "state")),
}
HISTOGRAMS: dict[str, tuple[str, list[float]]] = {
    "simsd_queue_seconds": ("from arrival to admission", WAIT_BUCKETS_S),
    "simsd_time_to_first_token_seconds": ("from arrival to the first token handed out", WAIT_BUCKETS_S),
    "simsd_inter_token_seconds": ("a request's mean time for each token after its first output", TOKEN_BUCKETS_S),
    "simsd_request_seconds": ("from arrival to the end of a finished request", WAIT_BUCKETS_S),
}
"""Name -> what it counts, and its labels or its buckets' upper bounds. Serve adds deployment, replica, application."""

Sample = tuple[str, tuple[str, ...], float]
"""(name, label values, total)."""


@dataclass(slots=True)
class RequestRecord:
    """How one request went, as the coordinator saw it. Times are of `time.perf_counter`.

    The outcome is "cancelled" unless the request ends in another way.
    """

    request: Request
    began: float = field(default_factory=time.perf_counter)
    outcome: str = "cancelled"
    first: float | None = None
    last: float = 0.0
    first_tokens: int = 0
    tokens: int = 0
    stats: Stats | None = None

    def see(self, output: Output) -> None:
        """Take note of an output that is handed out."""
        now = time.perf_counter()
        if output.token_ids:
            self.tokens += len(output.token_ids)
            self.last = now
            if self.first is None:
                self.first, self.first_tokens = now, self.tokens
        if output.finish_reason is not None:
            self.outcome, self.stats = output.finish_reason, output.stats

    def fail(self, error: Exception) -> None:
        """Take the error's code in the API for the outcome."""
        self.outcome = to_api_error(error).code or "error"

    @property
    def elapsed_s(self) -> float:
        """Seconds since the request arrived."""
        return time.perf_counter() - self.began

    def times(self) -> Iterator[tuple[str, float]]:
        """Yield (histogram, seconds) for each phase that the request reached.

        The inter-token time is the mean over the tokens after the first output.
        """
        if self.first is not None:
            yield "simsd_time_to_first_token_seconds", self.first - self.began
            if self.tokens > self.first_tokens:
                yield "simsd_inter_token_seconds", (self.last - self.first) / (self.tokens - self.first_tokens)
        if self.stats is not None:
            yield "simsd_queue_seconds", self.stats.queue_s
            yield "simsd_request_seconds", self.elapsed_s


def samples(metrics: LoopMetrics) -> Iterator[Sample]:
    """Yield the current totals of the loop's counters."""
    yield "simsd_prompt_tokens", (), metrics.prompt_tokens
    yield "simsd_prefix_hit_tokens", (), metrics.prefix_hit_tokens
    yield "simsd_generated_tokens", (), metrics.generated_tokens
    yield "simsd_rounds", (), metrics.rounds
    yield "simsd_sequence_rounds", (), metrics.sequence_rounds
    yield "simsd_recovered_tokens", (), metrics.recovered
    yield "simsd_bonus_tokens", (), metrics.bonus
    yield "simsd_fallback_tokens", (), metrics.fallback_tokens
    for name, sizes in (("simsd_drafted_tokens", metrics.drafts), ("simsd_accepted_tokens", metrics.accepts)):
        for step, tokens in enumerate(by_step(sizes)):
            yield name, (str(step),), tokens
    for role, model in (("target", metrics.target), ("draft", metrics.draft)):
        yield "simsd_forwards", (role, "prefill"), model.prefill_forwards
        yield "simsd_forwards", (role, "decode"), model.decode_forwards
        yield "simsd_rows", (role,), model.rows
        yield "simsd_model_seconds", (role,), model.seconds


class Exporter:
    """The metrics of one coordinator, in its Serve replica. `run` keeps them up to date."""

    def __init__(self, loop: Loop, page_use: Callable[[], Awaitable[dict[Role, PageUse]]]) -> None:
        self._loop, self._page_use = loop, page_use
        self._counters = {name: Counter(name, text, labels) for name, (text, labels) in COUNTERS.items()}
        self._gauges = {name: Gauge(name, text, labels) for name, (text, labels) in GAUGES.items()}
        self._histograms = {name: Histogram(name, text, bounds) for name, (text, bounds) in HISTOGRAMS.items()}
        self._exported: dict[tuple[str, tuple[str, ...]], float] = {}
        self._pages: dict[Role, PageUse] = {}
        self._pages_of_round = -1

    async def run(self) -> None:
        """Export once a second until cancelled. A failure is logged, and the next second tries again."""
        while True:
            try:
                await self.export()
            except Exception:
                logger.exception("metrics were not exported")
            await asyncio.sleep(EXPORT_S)

    async def export(self) -> None:
        """Bring counters and gauges up to date. All gauges are set each time, since Ray drops one that is not."""
        for name, values, total in samples(self._loop.metrics):
            more = total - self._exported.get((name, values), 0)
            if more > 0:
                self._add(name, values, more)
                self._exported[name, values] = total
        running, waiting = self._loop.load()
        self._gauges["simsd_running_requests"].set(running, tags={})
        self._gauges["simsd_waiting_requests"].set(waiting, tags={})
        rounds = self._loop.metrics.rounds
        if rounds != self._pages_of_round:  # the pages of an idle server do not change
            self._pages = await self._page_use()
            # A running request may be cancelled, and give its pages back without another round.
            self._pages_of_round = -1 if running else rounds
        for role, use in self._pages.items():
            for state in ("held", "cached", "free"):
                self._gauges["simsd_pages"].set(getattr(use, state), tags={"model": role, "state": state})

    def ended(self, record: RequestRecord) -> None:
        """Count a request that is over."""
        self._add("simsd_requests", (record.outcome, record.request.params.method), 1)
        for name, seconds in record.times():
            self._histograms[name].observe(seconds, tags={})
        for phase in ("queue", "prefill", "decode") if record.stats else ():
            if (seconds := getattr(record.stats, f"{phase}_s")) > 0:
                self._add("simsd_request_phase_seconds", (phase,), seconds)

    def _add(self, name: str, values: tuple[str, ...], more: float) -> None:
        _, labels = COUNTERS[name]
        self._counters[name].inc(more, tags=dict(zip(labels, values, strict=True)))
