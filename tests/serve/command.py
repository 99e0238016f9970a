"""`simsd serve` as a user runs it, in a process of its own, with metrics, JSON logs and spans to a collector."""

import contextlib
import http.server
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from simsd.cli import main as cli
from simsd.worker.ports import free_port

SIMSD = [sys.executable, "-m", "simsd.cli.main", "serve"]
IN_THE_BACKGROUND = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")
"""Runs a command with SIGINT ignored, as it is for what a script starts with `&`."""
STDERR = "stderr.txt"
STOPPED_WITHIN_S = 60.0
"""Three seconds on an idle machine; tests beside it take what they get."""


def refused(*options: str) -> str:
    """The one line that the command ends with instead of starting."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["serve", *options])
    return one_line(code, out.getvalue(), err.getvalue())


def one_line(code: int, out: str, err: str) -> str:
    assert code in (1, 2), err
    assert out == ""
    line = err.strip()
    assert "\n" not in line
    assert "Traceback" not in line
    return line


@dataclass
class Collector:
    """An OTLP collector: takes spans over HTTP, keeps them."""

    port: int
    spans: list[Any] = field(default_factory=list)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans += scope.spans
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()


@dataclass(frozen=True)
class Command:
    """A running `simsd serve` with everything on, and what it has printed."""

    process: "subprocess.Popen[str]"
    directory: Path
    url: str
    grpc: str
    curl: str
    metrics_url: str
    logs: Path
    collector: Collector

    def ask(self, content: str, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": content}]} | fields
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, headers=headers, timeout=60)

    def scrape(self) -> dict[tuple[str, ...], float]:
        """(series, label values without those of Ray and Serve…) -> value, of our metrics."""
        found: dict[tuple[str, ...], float] = {}
        for family in text_string_to_metric_families(httpx.get(self.metrics_url, timeout=10).text):
            for sample in family.samples:
                if sample.name.startswith("ray_simsd_"):
                    ours = ("outcome", "method", "phase", "step", "model", "kind", "state", "le")
                    labels = tuple(sample.labels[name] for name in ours if sample.labels.get(name))
                    assert sample.labels["application"] == "simsd"
                    assert (sample.name, *labels) not in found
                    found[sample.name, *labels] = sample.value
        return found

    def lines(self, deployment: str) -> list[dict[str, Any]]:
        """The log of a deployment's replicas; every line must be a JSON object."""
        files = list(self.logs.glob(f"replica_simsd_{deployment}_*.log"))
        assert files
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@contextlib.contextmanager
def started(
    port: int, temporary: Path, *options: str, environment: dict[str, str] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """The command in a session of its own, with a temporary directory of its own, and its stderr in `STDERR` there."""
    temporary.mkdir()
    with (
        (temporary / STDERR).open("w") as stderr,
        subprocess.Popen(
            [*IN_THE_BACKGROUND, *SIMSD, "--port", str(port), *options],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=os.environ | (environment or {}) | {"TMPDIR": str(temporary)},
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def running(temporary: Path) -> Iterator[Command]:
    port, grpc_port, metrics_port, collector = free_port(), free_port(), free_port(), Collector(free_port())
    environment = {
        "SIMSD_LOG_FORMAT": "json",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
        "OTEL_BSP_SCHEDULE_DELAY": "300",
        "RAY_metrics_report_interval_ms": "1000",
    }
    options = ("--grpc-port", str(grpc_port), "--metrics-port", str(metrics_port))
    began = time.monotonic()
    with collector.listening(), started(port, temporary / "t", *options, environment=environment) as process:
        assert process.stdout is not None
        notes = temporary / "t" / STDERR
        assert process.stdout.readline() == f"ready http://127.0.0.1:{port}\n", notes.read_text()
        print(f"ready after {time.monotonic() - began:.1f} s")
        assert process.stdout.readline() == f"ready grpc 127.0.0.1:{grpc_port}\n"
        curl = process.stdout.readline()
        found = re.search(r"simsd: metrics (\S+), logs (\S+)\n", notes.read_text())
        assert found, notes.read_text()
        assert found[1] == f"http://127.0.0.1:{metrics_port}/metrics"
        url, grpc = f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}"
        yield Command(process, temporary / "t", url, grpc, curl, found[1], Path(found[2]), collector)
