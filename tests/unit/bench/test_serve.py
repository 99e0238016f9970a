"""The sweep of `simsd bench serve`, against a server that streams two tokens."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from simsd.errors import ConfigError
from simsd_bench.measure import sweep
from simsd_bench.measure.methods import Protocol, methods
from simsd_bench.measure.pair import PairSpec
from simsd_bench.measure.prompts import family_items

TINY = PairSpec(device="cpu", random_weights=("tiny", "tiny"))
B = 4


@pytest.fixture(scope="module")
def items() -> list[Any]:
    return [replace(item, grade=None) for item in family_items(("math", "code", "trivia", "choice"), 1)]


class Handler(BaseHTTPRequestHandler):
    """Streams two tokens; remembers bodies and how many requests were in flight. A prompt "fail" is refused."""

    bodies: list[dict[str, Any]]
    flying, most = 0, 0
    lock = threading.Lock()

    def do_POST(self) -> None:
        cls = type(self)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with cls.lock:
            cls.bodies.append(body)
            cls.flying += 1
            cls.most = max(cls.most, cls.flying)
        time.sleep(0.02)
        if body["messages"][0]["content"] == "fail":
            self.send_error(400, "refused")
        elif "stream" not in body:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"usage": {"completion_tokens": 2}}).encode())
        else:
            self.send_response(200)
            self.end_headers()
            for delta in ({"role": "assistant"}, {"content": "a"}, {"content": "b"}):
                self.event({"choices": [{"delta": delta}], "usage": None})
                time.sleep(0.01)
            self.event({"choices": [], "usage": {"completion_tokens": 2}})
            self.wfile.write(b"data: [DONE]\n\n")
        with cls.lock:
            cls.flying -= 1

    def event(self, chunk: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def server() -> Iterator[tuple[str, type[Handler]]]:
    handler = type("Fresh", (Handler,), {"bodies": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}", handler
        finally:
            http.shutdown()
            thread.join()


def test_a_sweep_keeps_so_many_clients_busy(items: list[Any]) -> None:
    asked = items * 4
    with server() as (url, handler):
        report = sweep.run(
            PairSpec(), asked, B, ["vanilla-dynamic", "simsd"], [1, 3], Protocol(), url, lambda _: lambda: None
        )
    assert handler.most == 3
    assert [(row["method"], row["concurrency"], row["interface"]) for row in report["rows"]] == [
        (method, concurrency, interface)
        for concurrency in (1, 3)
        for method in ("vanilla-dynamic", "simsd")
        for interface in ("HTTP", "HTTP, whole")
    ]
    assert len(handler.bodies) == 8 * (3 + 16)
    assert sum("stream" in body for body in handler.bodies) == 4 * (3 + 16)
    told = handler.bodies[0]["simsd"]
    assert told == {"method": "vanilla", "remasking": "dynamic"}  # .9 is the default
    for row in report["rows"]:
        assert row["requests"] == 16
        assert row["tokens_per_s"] == pytest.approx(2 * row["requests_per_s"])
        assert 20 < row["first_p50_ms"] <= row["latency_p50_ms"] <= row["latency_p95_ms"]
        assert (row["first_p50_ms"] == row["latency_p50_ms"]) == (row["interface"] == "HTTP, whole")
        assert not {"in_process_tokens_per_s", "cpu_ms"} & row.keys()  # somebody else's server


def test_a_server_that_refuses_is_quoted(items: list[Any]) -> None:
    bad = replace(items[0], messages=[{"role": "user", "content": "fail"}])
    with server() as (url, _), pytest.raises(sweep.ServerError, match=r"(?s)status 400.*refused"):
        sweep.run(PairSpec(), [bad], B, ["simsd"], [1], Protocol(), url, lambda _: lambda: None)


def test_what_cannot_be_asked_over_http_is_refused(items: list[Any]) -> None:
    named = methods(B, Protocol())
    for name, params in named.items():
        assert sweep.body(items[0], params)["simsd"]["method"] == params.method, name
    assert sweep.body(items[0], named["exact-self"])["simsd"] == {
        "method": "exact",
        "draft_steps": 1,
        "drafter": "self",
    }
    with pytest.raises(ConfigError, match="draft_top_k is not measured over HTTP"):
        sweep.body(items[0], replace(named["exact"], draft_top_k=8))
    with pytest.raises(ConfigError, match="random_weights"):
        sweep.run(TINY, items, B, ["simsd"], [1], Protocol(), None, lambda _: lambda: None)


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert sweep.percentile([1, 2, 3, 4], 0.5) == 2
    assert sweep.percentile(list(range(1, 101)), 0.95) == 95
    assert sweep.percentile([7], 0.95) == 7
