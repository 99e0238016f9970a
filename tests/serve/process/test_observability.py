"""What an operator sees of `simsd serve`: metrics as Prometheus scrapes them, log lines, spans in a collector."""

import asyncio
import logging
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from deployments import metrics, tracing
from deployments.logs import logging_config
from deployments.metrics import COUNTERS, GAUGES, HISTOGRAMS, RequestRecord, samples
from deployments.tracing import LoopTracing, Tracing
from simsd.errors import (
    CheckpointError,
    ConfigError,
    ContextLengthError,
    InternalError,
    QueueFullError,
    RequestError,
    WorkerLostError,
)
from simsd.loop.metrics import LoopMetrics
from simsd.messages.request import DecodeParams, Output, Request, RevealKind, Stats
from simsd.messages.round import BlockVerdict, Verdict, Verdicts
from tests.serve.cluster import wait_until
from tests.serve.command import Command

DOCUMENT = Path(__file__).parents[3] / "docs" / "observability.md"
EXPORTED_WITHIN_S = 60.0
TRACE, CLIENT_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def record(method: str = "simsd") -> RequestRecord:
    return RequestRecord(Request("r", [1, 2], DecodeParams(method=method)))


def test_times_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tokens after 1 s, text alone after 2, three tokens after 4, and the end after 5."""
    seen = record()
    clock = iter(seen.began + seconds for seconds in (1.0, 2.0, 4.0, 5.0, 5.5))
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: next(clock))
    for output in (
        Output([5, 6], "a"),
        Output([], "b"),
        Output([7, 8, 9], "c"),
        Output([], "", "stop", Stats(queue_s=0.25)),
    ):
        seen.see(output)
    assert (seen.outcome, seen.tokens) == ("stop", 5)
    expected = {
        "simsd_time_to_first_token_seconds": 1.0,
        "simsd_inter_token_seconds": 1.0,
        "simsd_queue_seconds": 0.25,
        "simsd_request_seconds": 5.5,
    }
    assert dict(seen.times()) == pytest.approx(expected)


def test_a_request_that_got_nowhere() -> None:
    assert (record().outcome, list(record().times())) == ("cancelled", [])


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RequestError("no"), "invalid_value"),
        (ContextLengthError("no"), "context_length_exceeded"),
        (QueueFullError("no"), "queue_full"),
        (WorkerLostError("no", "draft"), "unavailable"),
        (CheckpointError("no"), "checkpoint_error"),
        (InternalError("no"), "internal_error"),
    ],
)
def test_an_error_is_counted_by_its_code(error: Exception, outcome: str) -> None:
    failed = record()
    failed.fail(error)
    assert failed.outcome == outcome


def decided(drafted: int, *kinds: RevealKind) -> Verdict:
    reveals = [(offset, 9) for offset in range(len(kinds))]
    return Verdict(8, [BlockVerdict(reveals, list(kinds), drafted=drafted)], draft_cached=8)


def test_every_counter_is_fed_with_its_labels() -> None:
    counted = LoopMetrics()
    counted.count([], [], Verdicts({"a": decided(2, "accepted")}, 1, 8, 0.5))
    fed = {name: len(values) for name, values, _ in samples(counted)}
    by_request = {"simsd_requests": 2, "simsd_request_phase_seconds": 1}
    assert fed | by_request == {name: len(labels) for name, (_, labels) in COUNTERS.items()}


def series() -> set[str]:
    """Names as they are scraped."""
    names = {f"ray_{name}_total" for name in COUNTERS} | {f"ray_{name}" for name in GAUGES}
    return names | {f"ray_{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "sum", "count")}


def test_the_document_has_every_metric_and_no_other() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    named = set(re.findall(r"\bray_simsd_\w+", text))
    assert not named - series() - {f"ray_{name}" for name in HISTOGRAMS}
    table = set(re.findall(r"^\| `(ray_simsd_\w+)`", text, re.MULTILINE))
    assert table == {f"ray_{name}_total" for name in COUNTERS} | {f"ray_{name}" for name in GAUGES | HISTOGRAMS}


def test_every_question_has_two_queries() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").split("## Questions")[1].split("\n## ")[0]
    questions = text.split("\n### ")[1:]
    assert len(questions) >= 8
    for question in questions:
        (queries,) = re.findall(r"```promql\n(.*?)```", question, re.DOTALL)
        assert len([line for line in queries.splitlines() if line and not line.startswith("#")]) >= 2, question
        assert all(query.count("(") == query.count(")") for query in queries.splitlines())


@pytest.mark.parametrize(
    ("environment", "config"),
    [
        ({}, None),
        ({"SIMSD_LOG_FORMAT": "json"}, {"encoding": "JSON"}),
        ({"SIMSD_LOG_FORMAT": "text", "SIMSD_LOG_LEVEL": "Warning"}, {"encoding": "TEXT", "log_level": "WARNING"}),
    ],
)
def test_logs_as_the_environment_asks(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], config: dict[str, str] | None
) -> None:
    for name in ("SIMSD_LOG_FORMAT", "SIMSD_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert logging_config() == config


def test_nonsense_in_the_environment_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMSD_LOG_FORMAT", "xml")
    with pytest.raises(ConfigError, match="SIMSD_LOG_FORMAT must be one of json, text; got 'xml'"):
        logging_config()
    monkeypatch.setenv("SIMSD_TRACING", "yes")
    with pytest.raises(ConfigError, match="SIMSD_TRACING must be 0 or 1; got 'yes'"):
        tracing.enabled()


@pytest.mark.parametrize(
    ("switch", "endpoint", "on"),
    [("", "", False), ("", "http://c:4318", True), ("1", "", True), ("0", "http://c:4318", False)],
)
def test_when_tracing_is_on(monkeypatch: pytest.MonkeyPatch, switch: str, endpoint: str, on: bool) -> None:
    monkeypatch.setenv("SIMSD_TRACING", switch)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    assert tracing.enabled() is on


def test_tracing_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMSD_TRACING", "1")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(ConfigError, match=r"simsd-serve\[tracing\]"):
        tracing.enabled()


def test_off_no_exporter_is_imported(repository: Path) -> None:
    """Ray Serve imports OpenTelemetry's SDK by itself."""
    code = (
        "import sys, deployments.app, deployments.ingress.server; from deployments.tracing import Tracing;"
        "assert Tracing.from_environment() is None;"
        "sys.exit(any(name.startswith('opentelemetry.exporter.otlp') for name in sys.modules))"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL", "SIMSD"))}
    assert subprocess.run([sys.executable, "-c", code], cwd=repository, env=environment, timeout=120).returncode == 0


def test_spans_of_a_round() -> None:
    """Two requests share a round of 0.5 s, of which the draft took 0.1 and the target 0.2; a third still waits."""
    exporter = InMemorySpanExporter()
    spans = Tracing(exporter)
    loop = LoopTracing(spans)
    records = [RequestRecord(Request(name, [1], DecodeParams())) for name in "abc"]
    for each in records:
        loop.begin(each, {"traceparent": f"00-{TRACE}-{CLIENT_SPAN}-01"} if each.request.request_id == "a" else None)
    began = records[2].began + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing.time, "perf_counter", lambda: began + 0.5)
        drafted = decided(4, "accepted", "accepted", "accepted", "recovered")
        loop.round(began, Verdicts({"a": drafted, "b": Verdict(8), "gone": Verdict(8)}, 1, 40, 0.2, 4, 36, 0.1))
        for each in records:
            loop.ended(each)
    spans.flush()
    done = exporter.get_finished_spans()
    by_id = {span.context.span_id: span for span in done}
    assert Counter(span.name for span in done) == {"generate": 3, "queue": 3, "round": 2, "verify": 2, "draft": 1}
    below = [(span, by_id[span.parent.span_id]) for span in done if span.parent and span.parent.span_id in by_id]
    assert {(span.name, parent.name) for span, parent in below} == {
        ("queue", "generate"),
        ("round", "generate"),
        ("draft", "round"),
        ("verify", "round"),
    }
    traces = Counter(f"{span.context.trace_id:032x}" == TRACE for span in done)
    assert traces == {True: 5, False: 6}
    (draft,) = (span for span in done if span.name == "draft")
    around = by_id[draft.parent.span_id]
    (verify,) = (span for span in done if span.name == "verify" and span.parent.span_id == around.context.span_id)
    assert around.attributes["simsd.accepted"] == 3 and around.attributes["simsd.batch"] == 3
    assert (around.end_time - around.start_time) / 1e9 == pytest.approx(0.5, abs=1e-6)
    assert (draft.end_time - around.start_time) / 1e9 == pytest.approx(0.1, abs=1e-6)
    assert draft.start_time == around.start_time and verify.end_time == around.end_time
    assert (verify.end_time - verify.start_time) / 1e9 == pytest.approx(0.2, abs=1e-6)
    queues = sorted((span.end_time - span.start_time) / 1e9 for span in done if span.name == "queue")
    assert queues[1] == pytest.approx(1, abs=0.01) and queues[2] == pytest.approx(1.5, abs=0.01)


def test_what_is_not_sampled_makes_no_spans() -> None:
    exporter = InMemorySpanExporter()
    spans = Tracing(exporter)
    loop, unsampled = LoopTracing(spans), record()
    loop.begin(unsampled, {"traceparent": f"00-{TRACE}-{CLIENT_SPAN}-00"})
    loop.round(0.0, Verdicts({"r": Verdict(8)}, 1, 1, 0.1))
    loop.ended(unsampled)
    spans.flush()
    assert not exporter.get_finished_spans()


def test_scraped_counters_are_what_requests_were_told(command: Command) -> None:
    """Requests of every method, one of them twice; then one that is refused and one that leaves."""
    methods = ("simsd", "exact", "vanilla", "simsd", "simsd")
    question = "Here is one question of geography, to be answered with one word: what is the capital of France?"
    answers = [command.ask(question, max_tokens=60, simsd={"method": method, "gamma": 3}) for method in methods[:4]]
    options = {"gamma": 3, "fallback": "target"}
    answers.append(command.ask("Of Rome.", max_tokens=60, ignore_eos=True, temperature=1.0, seed=3, simsd=options))
    bodies = [answer.raise_for_status().json() for answer in answers]
    stats = [body["simsd"] for body in bodies]
    total = {name: sum(each[name] for each in stats) for name in stats[0] if name != "accept_histogram"}
    usage = {name: sum(body["usage"][name] for body in bodies) for name in ("prompt_tokens", "completion_tokens")}

    def value(name: str, *labels: str) -> float:
        return sum(each for key, each in found.items() if key[0] == f"ray_{name}" and set(labels) <= set(key))

    def arrived() -> bool:
        nonlocal found
        found = command.scrape()
        return value("simsd_requests_total") == 5 and value("simsd_sequence_rounds_total") == total["rounds"]

    found: dict[tuple[str, ...], float] = {}
    wait_until(arrived, EXPORTED_WITHIN_S, 0.5)
    reasons = [body["choices"][0]["finish_reason"] for body in bodies]
    for (outcome, method), count in Counter(zip(reasons, methods, strict=True)).items():
        assert value("simsd_requests_total", outcome, method) == count
    assert value("simsd_prompt_tokens_total") == usage["prompt_tokens"]
    assert value("simsd_generated_tokens_total") == usage["completion_tokens"]
    assert total["cached_tokens"] > 0
    assert value("simsd_prefix_hit_tokens_total") == total["cached_tokens"]
    for name in ("drafted", "accepted", "recovered", "bonus"):
        assert value(f"simsd_{name}_tokens_total") == total[name], name
    assert value("simsd_fallback_tokens_total") == total["fallback_tokens"]
    by_step = [value("simsd_accepted_tokens_total", str(step)) for step in range(4)]
    histograms = [(int(size), count) for each in stats for size, count in each["accept_histogram"].items()]
    assert by_step == [sum(count for size, count in histograms if size > step) for step in range(4)]
    # One request after the other: each had the batch for itself.
    assert value("simsd_rounds_total") == total["rounds"]
    assert value("simsd_forwards_total", "target") == total["target_forwards"]
    # What was drafted ahead in a request's last round is nobody's.
    assert 0 <= value("simsd_forwards_total", "draft") - total["draft_forwards"] <= 5
    assert value("simsd_rows_total", "target") > total["prompt_tokens"] - total["cached_tokens"]
    for model in ("target", "draft"):
        assert 0 < value("simsd_model_seconds_total", model) < total["prefill_s"] + total["decode_s"]
    for phase in ("queue", "prefill", "decode"):
        assert value("simsd_request_phase_seconds_total", phase) == pytest.approx(total[f"{phase}_s"], rel=1e-6)
    for name in HISTOGRAMS:
        assert value(f"{name}_count") == value(f"{name}_bucket", "+Inf") == 5, name
    assert value("simsd_running_requests") == value("simsd_waiting_requests") == 0

    def settled() -> bool:
        """Ray drops a gauge that comes late, on a busy machine; then the next scrape has it."""
        return (
            arrived()
            and value("simsd_pages", "held") == 0
            and {value("simsd_pages", model) for model in ("draft", "target")} == {32768 // 16}
            and {name for name, *_ in found} == series()
        )

    wait_until(settled, EXPORTED_WITHIN_S, 0.5)


def test_who_is_refused_and_who_leaves_is_counted(command: Command) -> None:
    assert command.ask("x", max_tokens=10**6).json()["error"]["code"] == "context_length_exceeded"

    async def leave() -> None:
        body = {"messages": [{"role": "user", "content": "y"}], "max_tokens": 400, "ignore_eos": True, "stream": True}
        async with (
            httpx.AsyncClient(timeout=60) as client,
            client.stream("POST", f"{command.url}/v1/chat/completions", json=body) as response,
        ):
            await anext(response.aiter_lines())

    asyncio.run(leave())

    def counted() -> bool:
        found = command.scrape()
        outcomes = {key[1] for key in found if key[0] == "ray_simsd_requests_total"}
        held = [each for key, each in found.items() if key[0] == "ray_simsd_pages" and "held" in key]
        return {"context_length_exceeded", "cancelled"} <= outcomes and held == [0, 0]

    wait_until(counted, EXPORTED_WITHIN_S, 0.5)


def test_a_request_is_one_line_of_json(command: Command) -> None:
    answer = command.ask("What is 2 + 3?", {"x-request-id": "it-is-me"}).json()
    wait_until(lambda: any(line.get("id") == answer["id"] for line in command.lines("Coordinator")), 30)
    (line,) = (line for line in command.lines("Coordinator") if line.get("id") == answer["id"])
    assert (line["request_id"], line["levelname"], line["deployment"]) == ("it-is-me", "INFO", "simsd_Coordinator")
    assert (line["outcome"], line["method"]) == ("stop", "simsd")
    assert line["completion_tokens"] == answer["usage"]["completion_tokens"]
    for name in ("rounds", "drafted", "accepted", "recovered", "bonus", "fallback_tokens", "cached_tokens"):
        assert line[name] == answer["simsd"][name]
    assert line["queue_s"] == pytest.approx(answer["simsd"]["queue_s"], abs=1e-6)
    assert line["seconds"] >= line["first_token_s"] >= line["queue_s"]
    assert any(line.get("request_id") == "it-is-me" for line in command.lines("Ingress"))


def test_the_tree_of_spans(command: Command) -> None:
    """A client's trace goes on in the ingress, the coordinator and its rounds."""
    answer = command.ask("What is 4 + 4?", {"traceparent": f"00-{TRACE}-{CLIENT_SPAN}-01"}).json()
    stats = answer["simsd"]

    def trace() -> list[Any]:
        return [span for span in command.collector.spans if span.trace_id.hex() == TRACE]

    wait_until(lambda: {"generate", "POST /v1/chat/completions"} <= {span.name for span in trace()}, 30, 0.2)
    spans = trace()
    by_id = {span.span_id: span for span in spans}
    tree = Counter((span.name, getattr(by_id.get(span.parent_span_id), "name", "")) for span in spans)
    rounds = stats["rounds"]
    drafts = tree.pop(("draft", "round"))
    assert tree == {
        ("POST /v1/chat/completions", ""): 1,
        ("generate", "POST /v1/chat/completions"): 1,
        ("queue", "generate"): 1,
        ("round", "generate"): rounds,
        ("verify", "round"): rounds,
    }
    assert 0 < drafts <= rounds
    (root,) = (span for span in spans if span.name.startswith("POST"))
    assert root.parent_span_id.hex() == CLIENT_SPAN

    def attribute(span: Any, name: str) -> Any:
        (value,) = (each.value for each in span.attributes if each.key == name)
        return getattr(value, value.WhichOneof("value"))

    assert attribute(root, "http.response.status_code") == 200
    of_rounds = [span for span in spans if span.name == "round"]
    assert sum(attribute(span, "simsd.accepted") for span in of_rounds) == stats["accepted"]
    (generate,) = (span for span in spans if span.name == "generate")
    assert (attribute(generate, "simsd.id"), attribute(generate, "simsd.outcome")) == (answer["id"], "stop")
    for span in spans:
        parent = by_id.get(span.parent_span_id)
        if parent is not None and parent is not root:  # which is timed by another process
            assert parent.start_time_unix_nano <= span.start_time_unix_nano + 1000
            assert span.end_time_unix_nano <= parent.end_time_unix_nano + 1000


def test_our_loggers_join_serves() -> None:
    """In the text of a replica's log our lines look like Serve's."""
    from deployments.logs import OURS, SERVE_LOGGER, ToServe, join_serve

    seen: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    serve_logger, keep = logging.getLogger(SERVE_LOGGER), Keep()
    before = {name: logging.getLogger(name).level for name in (*OURS, SERVE_LOGGER)}
    serve_logger.addHandler(keep)
    serve_logger.setLevel(logging.INFO)
    try:
        join_serve()
        join_serve()
        logging.getLogger("deployments.ingress.http").info("once")
        assert [each.getMessage() for each in seen] == ["once"]
    finally:
        serve_logger.removeHandler(keep)
        for name, level in before.items():
            ours = logging.getLogger(name)
            ours.setLevel(level)
            ours.handlers = [handler for handler in ours.handlers if not isinstance(handler, ToServe)]
