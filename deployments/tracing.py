"""OpenTelemetry spans: request → generate → queue, and round → draft, verify.

Tracing is switched on by `SIMSD_TRACING=1` or by an `OTEL_EXPORTER_OTLP_ENDPOINT`, and needs the extra `tracing`; while
it is off, no part of OpenTelemetry is imported here. All else is set by OpenTelemetry's own variables, such as
OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and OTEL_EXPORTER_OTLP_HEADERS.
"""

import importlib.util
import os
import time
from typing import TYPE_CHECKING, Any

from deployments.metrics import RequestRecord
from simsd.errors import ConfigError
from simsd.messages.round import Verdicts

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

Carrier = dict[str, str]
"""A trace's context for another process: W3C's traceparent and tracestate."""
MAX_QUEUED_SPANS = 16384
"""A request has three spans a round, so that OpenTelemetry's default of 2,048 would drop some."""


def enabled() -> bool:
    """Return whether the environment switches tracing on; raises `ConfigError` if that is not installed."""
    switch = os.environ.get("SIMSD_TRACING", "")
    if switch not in ("", "0", "1"):
        raise ConfigError(f"SIMSD_TRACING must be 0 or 1; got {switch!r}")
    on = switch == "1" or (switch == "" and bool(os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")))
    if on and not _installed():
        raise ConfigError("tracing is on, but OpenTelemetry is not installed: pip install 'simsd-serve[tracing]'")
    return on


def _installed() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


class Tracing:
    """Makes the spans of one process. It has a provider of its own, so that Ray's or a host's is left alone."""

    def __init__(self, exporter: "SpanExporter | None" = None) -> None:
        """Without an `exporter`, spans go by OTLP over HTTP to where OpenTelemetry's environment says."""
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "simsd")})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=MAX_QUEUED_SPANS))
        self._tracer = self._provider.get_tracer("simsd")
        self._propagator = TraceContextTextMapPropagator()
        self._epoch_ns = time.time_ns() - time.perf_counter_ns()

    @classmethod
    def from_environment(cls) -> "Tracing | None":
        """Return the tracing that the environment asks for; None where it is off."""
        return cls() if enabled() else None

    def start(self, name: str, parent: "Span | Carrier | None", began: float, **attributes: Any) -> "Span":
        """Start a span that began at `began` (`time.perf_counter`), below a parent here or in another process."""
        from opentelemetry.trace import set_span_in_context

        if parent is None or isinstance(parent, dict):
            context = self._propagator.extract(parent or {})
        else:
            context = set_span_in_context(parent)
        return self._tracer.start_span(name, context, start_time=self._ns(began), attributes=attributes)

    def end(self, span: "Span", ended: float) -> None:
        span.end(self._ns(ended))

    def carrier(self) -> Carrier:
        """Return the context of the current span (`opentelemetry.trace.use_span`), for another process."""
        carrier: Carrier = {}
        self._propagator.inject(carrier)
        return carrier

    def flush(self) -> None:
        """Export the spans that wait."""
        self._provider.force_flush()

    def _ns(self, seconds: float) -> int:
        return self._epoch_ns + int(seconds * 1e9)


class TraceRequests:
    """ASGI middleware that makes a span for every POST, current while it is answered, in the client's trace if any."""

    def __init__(self, app: Any, tracing: Tracing) -> None:
        self._app, self._tracing = app, tracing

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from opentelemetry.trace import StatusCode, use_span

        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        attributes = {"http.request.method": scope["method"], "url.path": scope["path"]}
        attributes |= {"simsd.request_id": headers["x-request-id"]} if "x-request-id" in headers else {}
        span = self._tracing.start(f"POST {scope['path']}", headers, time.perf_counter(), **attributes)

        async def told(message: Any) -> None:
            if message["type"] == "http.response.start":
                span.set_attribute("http.response.status_code", message["status"])
                if message["status"] >= 500:
                    span.set_status(StatusCode.ERROR)
            await send(message)

        with use_span(span, end_on_exit=True):
            await self._app(scope, receive, told)


class LoopTracing:
    """Spans of a coordinator's requests. A round that several requests share has a span in the trace of each."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._spans: dict[str, Span] = {}
        self._queued: dict[str, Span] = {}

    def begin(self, record: RequestRecord, carrier: Carrier | None) -> None:
        """Begin the spans of a request that arrived; `carrier` is the context that it carries."""
        seq_id, params = record.request.request_id, record.request.params
        attributes = {"simsd.id": seq_id, "simsd.method": params.method, "simsd.max_tokens": params.max_tokens}
        attributes["simsd.prompt_tokens"] = len(record.request.prompt_ids)
        span = self._tracing.start("generate", carrier, record.began, **attributes)
        if span.is_recording():
            self._spans[seq_id] = span
            self._queued[seq_id] = self._tracing.start("queue", span, record.began)

    def round(self, began: float, verdicts: Verdicts) -> None:
        """Make the spans of a round (`Loop.on_round`).

        The draft's call is put at the beginning of the round and the target's at its end. The time between them is
        taken by the transport and the loop.
        """
        ended = time.perf_counter()
        for seq_id in self._spans.keys() & verdicts.items.keys():
            if seq_id in self._queued:
                self._tracing.end(self._queued.pop(seq_id), began)
            verdict = verdicts.items[seq_id]
            attributes: dict[str, Any] = {"simsd.batch": len(verdicts.items), "simsd.reveals": verdict.revealed}
            for name in ("drafted", "accepted", "recovered", "bonus", "fallback"):
                attributes[f"simsd.{name}"] = getattr(verdict, name)
            span = self._tracing.start("round", self._spans[seq_id], began, **attributes)
            if verdict.draft_cached is not None:
                drafted = began + verdicts.draft_s - verdicts.ahead_s
                self._call("draft", span, began, drafted, verdicts.draft_forwards, verdicts.draft_rows)
            start = max(began, ended - verdicts.target_s)
            self._call("verify", span, start, ended, verdicts.target_forwards, verdicts.target_rows)
            self._tracing.end(span, ended)

    def ended(self, record: RequestRecord) -> None:
        """End the spans of a request that is over."""
        now, seq_id = time.perf_counter(), record.request.request_id
        if (queued := self._queued.pop(seq_id, None)) is not None:
            self._tracing.end(queued, now)
        if (span := self._spans.pop(seq_id, None)) is not None:
            span.set_attributes({"simsd.outcome": record.outcome, "simsd.completion_tokens": record.tokens})
            self._tracing.end(span, now)

    def _call(self, name: str, parent: "Span", began: float, ended: float, forwards: int, rows: int) -> None:
        attributes = {"simsd.forwards": forwards, "simsd.rows": rows}
        self._tracing.end(self._tracing.start(name, parent, began, **attributes), ended)
