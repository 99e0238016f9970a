"""A concurrency sweep over HTTP and gRPC, compared with the same requests in this process.

The load is a closed loop: each client sends its next request when its last answer has arrived.
"""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import httpx

from simsd.errors import ConfigError, SimSDError
from simsd.eval.datasets import Item
from simsd.in_process import generate_all
from simsd.messages.options import options_of
from simsd.messages.request import DecodeParams, Request
from simsd_bench.measure.decode import Tick
from simsd_bench.measure.methods import Protocol, methods
from simsd_bench.measure.pair import PairSpec
from simsd_bench.measure.server import Server, serving
from simsd_client import AsyncSimSDClient, CallError, Options

PLAIN = ("max_tokens", "temperature", "ignore_eos")
"""Options that every body has beside its `simsd` object."""
DEFAULT_METHODS = ("vanilla-static", "vanilla-dynamic", "simsd")
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as a client saw it: seconds from sending to the first text and to the end, and the server's tokens."""

    first_s: float
    total_s: float
    tokens: int


Ask = Callable[[Item, DecodeParams], Awaitable[Answer]]
Connect = Callable[[int], AbstractAsyncContextManager[Ask]]
"""Number of concurrent clients -> a context in which requests can be sent."""


class ServerError(SimSDError):
    """A server under measurement answered with an error."""


def body(item: Item, params: DecodeParams) -> dict[str, Any]:
    """Return the body of a streamed chat completion with the settings that differ from their defaults.

    Raises `ConfigError`, which names a setting that has no place in the `simsd` object.
    """
    options = [option for option in options_of(DecodeParams).values() if option.name not in PLAIN]
    told = [option for option in options if getattr(params, option.name) != option.default]
    beyond = sorted(option.name for option in told if option.place != "simsd")
    if beyond:
        raise ConfigError(f"{beyond[0]} is not measured over HTTP")
    return {
        "messages": item.messages,
        **{name: getattr(params, name) for name in PLAIN},
        "stream": True,
        "stream_options": {"include_usage": True},
        "simsd": {option.name: getattr(params, option.name) for option in told} | {"method": params.method},
    }


async def ask(client: httpx.AsyncClient, item: Item, params: DecodeParams) -> Answer:
    """Send one request; raises `ServerError` with the server's message."""
    began, first_s, tokens = time.perf_counter(), None, None
    async with client.stream("POST", "/v1/chat/completions", json=body(item, params)) as reply:
        if reply.status_code != 200:
            raise ServerError(f"status {reply.status_code}: {(await reply.aread()).decode()[:300]}")
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line.removeprefix("data: "))
            if "error" in chunk:
                raise ServerError(str(chunk["error"]))
            if first_s is None and any(choice["delta"].get("content") for choice in chunk["choices"]):
                first_s = time.perf_counter() - began
            tokens = (chunk.get("usage") or {}).get("completion_tokens", tokens)
    if tokens is None:
        raise ServerError("the stream ended without usage")
    total_s = time.perf_counter() - began
    return Answer(total_s if first_s is None else first_s, total_s, tokens)


async def ask_whole(client: httpx.AsyncClient, item: Item, params: DecodeParams) -> Answer:
    """Send one request that is not streamed, so that its first text comes at the end; raises as `ask`."""
    began = time.perf_counter()
    asked = {name: value for name, value in body(item, params).items() if not name.startswith("stream")}
    reply = await client.post("/v1/chat/completions", json=asked)
    if reply.status_code != 200:
        raise ServerError(f"status {reply.status_code}: {reply.text[:300]}")
    total_s = time.perf_counter() - began
    return Answer(total_s, total_s, reply.json()["usage"]["completion_tokens"])


def over_http(url: str, whole: bool = False) -> Connect:
    @asynccontextmanager
    async def connect(concurrency: int) -> AsyncIterator[Ask]:
        limits = httpx.Limits(max_connections=concurrency)
        async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits) as client:
            yield partial(ask_whole if whole else ask, client)

    return connect


def over_grpc(address: str) -> Connect:
    async def ask_grpc(client: AsyncSimSDClient, item: Item, params: DecodeParams) -> Answer:
        fields_of = body(item, params)
        options = {name: fields_of[name] for name in PLAIN} | fields_of["simsd"]
        began, first_s, tokens = time.perf_counter(), None, 0
        try:
            async for message in client.stream(item.messages, timeout_s=TIMEOUT_S, **cast(Options, options)):
                if first_s is None and message.text:
                    first_s = time.perf_counter() - began
                tokens += len(message.token_ids)
        except CallError as error:
            raise ServerError(f"{error.code.name}: {error}") from error
        total_s = time.perf_counter() - began
        return Answer(total_s if first_s is None else first_s, total_s, tokens)

    @asynccontextmanager
    async def connect(concurrency: int) -> AsyncIterator[Ask]:
        async with AsyncSimSDClient(address) as client:
            yield partial(ask_grpc, client)

    return connect


async def sweep(
    connect: Connect,
    asked: Sequence[Item],
    params: DecodeParams,
    concurrency: int,
    tick: Tick = lambda: None,
) -> tuple[list[Answer], float]:
    """Send all prompts from `concurrency` clients; returns (answers, seconds from first request to last answer)."""
    left = iter(asked)
    answers: list[Answer] = []

    async def client_of(answer: Ask) -> None:
        for item in left:
            answers.append(await answer(item, params))
            tick()

    async with connect(concurrency) as answer:
        began = time.perf_counter()
        await asyncio.gather(*(client_of(answer) for _ in range(concurrency)))
        return answers, time.perf_counter() - began


def row(interface: str, method: str, concurrency: int, answers: list[Answer], wall_s: float) -> dict[str, Any]:
    """Return the columns of one line: throughput, and percentiles over requests of first text and latency."""
    latencies, firsts = sorted(a.total_s for a in answers), sorted(a.first_s for a in answers)
    return {
        "interface": interface,
        "method": method,
        "concurrency": concurrency,
        "requests": len(answers),
        "tokens_per_s": sum(a.tokens for a in answers) / wall_s,
        "requests_per_s": len(answers) / wall_s,
        "first_p50_ms": 1000 * statistics.median(firsts),
        "first_p95_ms": 1000 * percentile(firsts, 0.95),
        "latency_p50_ms": 1000 * statistics.median(latencies),
        "latency_p95_ms": 1000 * percentile(latencies, 0.95),
    }


def requests_for(concurrency: int, most: int) -> int:
    """Return how many requests to send: four for each client, at least 16, at most `most`."""
    return min(most, max(16, 4 * concurrency))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile of values in ascending order; `share` is between 0 and 1."""
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 100) * len(ordered) // 100) - 1))]


def in_process(
    spec: PairSpec, block_size: int, asked: Sequence[Item], params: DecodeParams, concurrency: int, warm_up: int = 3
) -> tuple[float, float]:
    """Return (tokens/s, CPU seconds) of the same prompts without Ray and network, with prefill, as over a server."""
    loop = spec.loop(block_size, concurrency)
    ids = [loop.tokenizer.encode_messages(item.messages, tools=item.tools) for item in asked]
    generate_all(loop, [Request(f"warm-{i}", prompt, params) for i, prompt in enumerate(ids[:warm_up])])
    began, cpu_s = time.perf_counter(), time.process_time()
    completions = generate_all(loop, [Request(str(i), prompt, params) for i, prompt in enumerate(ids)])
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    return sum(c.stats.completion_tokens for c in completions) / wall_s, cpu_s


def run(
    spec: PairSpec,
    asked: Sequence[Item],
    block_size: int,
    names: Sequence[str],
    concurrencies: Sequence[int],
    protocol: Protocol,
    url: str | None,
    note: Callable[[str], Tick],
) -> dict[str, Any]:
    """Measure methods at each concurrency on a running server, or on one that is started, and then also in process."""
    params = methods(block_size, protocol)
    for name in names:
        body(asked[0], params[name])  # raises before a server is started if a setting cannot be sent
    rows = []
    with nullcontext(Server(url)) if url else serving(spec, block_size, max(concurrencies)) as server:
        interfaces = {"HTTP": over_http(server.url), "HTTP, whole": over_http(server.url, whole=True)}
        interfaces |= {"gRPC": over_grpc(server.grpc)} if server.grpc else {}
        for concurrency in concurrencies:
            for name in names:  # methods take turns, so that a machine that slows down slows them alike
                sent = asked[: requests_for(concurrency, len(asked))]
                for interface, connect in interfaces.items():
                    tick = note(f"{name} by {interface}, {concurrency} at a time: {len(sent)} requests")
                    # Warm-up is a sweep of its own, so that the CPU seconds exclude it too.
                    asyncio.run(sweep(connect, sent[: protocol.warm_up], params[name], 1))
                    before, client_s = server.cpu_s(), time.process_time()
                    answers, wall_s = asyncio.run(sweep(connect, sent, params[name], concurrency, tick))
                    taken = {part: after - before[part] for part, after in server.cpu_s().items()}
                    taken = {"client": time.process_time() - client_s} | taken
                    each = row(interface, name, concurrency, answers, wall_s)
                    if server.pid:
                        each["cpu_ms"] = {part: 1000 * cpu_s / len(sent) for part, cpu_s in taken.items()}
                    rows.append(each)
    inside: dict[tuple[str, int], tuple[float, float]] = {}
    for each in rows if not url else ():
        key, sent = (each["method"], each["concurrency"]), asked[: each["requests"]]
        if key not in inside:
            note(f"{each['method']}, {each['concurrency']} at a time, in process")
            inside[key] = in_process(spec, block_size, sent, params[key[0]], key[1], protocol.warm_up)
        each["in_process_tokens_per_s"], cpu_s = inside[key]
        each["in_process_cpu_ms"] = 1000 * cpu_s / len(sent)
    return {"kind": "serve", "protocol": protocol.describe(), "block_size": block_size, "url": bool(url), "rows": rows}
