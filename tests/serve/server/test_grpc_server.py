"""The gRPC interface through Ray Serve's proxy."""

import asyncio
import contextlib
import io
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from simsd_client import AsyncSimSDClient, CallError, SimSDClient
from simsd_client.v1 import simsd_pb2
from tests.serve.cluster import FREED_WITHIN_S, held, wait_until
from tests.serve.grpc_calls import malformed
from tests.serve.server.conftest import TIMEOUT_S, Server
from tests.serve.test_grpc import FUZZ_CASES, NEVER, raw_call

CHAT = [{"role": "user", "content": "What is the capital of France?"}]
LONG: dict[str, Any] = {"max_tokens": 800, "ignore_eos": True, "temperature": 1.0}


@pytest.fixture
def client(server: Server) -> Any:
    with SimSDClient(server.grpc, timeout_s=TIMEOUT_S) as client:
        yield client


@pytest.fixture
async def async_client(server: Server) -> AsyncIterator[AsyncSimSDClient]:
    async with AsyncSimSDClient(server.grpc, timeout_s=TIMEOUT_S) as client:
        yield client


def nothing_held() -> bool:
    return set(held().values()) == {(0, 0)}


@pytest.mark.parametrize("method", ["vanilla", "simsd", "exact"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_answer_is_the_one_over_http(server: Server, client: SimSDClient, method: str, temperature: float) -> None:
    options: Any = {"max_tokens": 40, "temperature": temperature, "seed": 5}
    body = {"messages": CHAT, "simsd": {"method": method}} | options
    with server.client() as http:
        over_http = http.post("/v1/chat/completions", json=body).json()
    whole = client.generate(CHAT, method=method, **options)
    parts = list(client.stream(CHAT, method=method, logprobs=1, **options))
    assert whole.text == over_http["choices"][0]["message"]["content"] != ""
    assert "".join(part.text for part in parts) == whole.text
    assert [token for part in parts for token in part.token_ids] == list(whole.token_ids)
    assert all(len(part.logprobs) == len(part.token_ids) for part in parts)
    assert parts[-1].finish_reason == whole.finish_reason != simsd_pb2.FINISH_REASON_UNSPECIFIED
    assert parts[-1].usage.completion_tokens == over_http["usage"]["completion_tokens"] == len(whole.token_ids)
    assert parts[-1].stats.rounds == over_http["simsd"]["rounds"]


def test_events_tell_the_whole_answer(client: SimSDClient) -> None:
    parts = list(client.stream(CHAT, events=True, max_tokens=24, ignore_eos=True))
    events = [event for part in parts for event in part.events]
    rounds = [event.round for event in events]
    assert rounds == list(range(rounds[0], parts[-1].stats.rounds + 1)), "rounds that only read the prompt have none"
    revealed = {reveal.index: reveal.token_id for event in events for reveal in event.reveals}
    tokens = [token for part in parts for token in part.token_ids]
    assert [revealed[index] for index in range(len(tokens))] == tokens
    accepted = sum(reveal.kind == simsd_pb2.REVEAL_KIND_ACCEPTED for event in events for reveal in event.reveals)
    assert accepted == parts[-1].stats.accepted > 0
    assert sum(len(event.drafted) for event in events) == parts[-1].stats.drafted


def test_models_and_tokens(client: SimSDClient) -> None:
    (model,) = client.models()
    assert model.name == "tiny"
    answer = client.generate(CHAT, max_tokens=1)
    assert len(client.tokenize(CHAT)) == answer.usage.prompt_tokens


def ask(client: SimSDClient, stream: bool, **options: Any) -> None:
    _ = list(client.stream(CHAT, **options)) if stream else client.generate(CHAT, **options)


@pytest.mark.parametrize("stream", [False, True])
def test_refusals_have_their_details(client: SimSDClient, stream: bool) -> None:
    with pytest.raises(CallError) as caught:
        ask(client, stream, gamma=99)
    assert (caught.value.code, caught.value.field) == (grpc.StatusCode.INVALID_ARGUMENT, "simsd.gamma")
    with pytest.raises(CallError) as caught:
        ask(client, stream, max_tokens=10**6)
    assert (caught.value.reason, caught.value.field) == ("CONTEXT_LENGTH_EXCEEDED", "max_tokens")


def test_size_limits(server: Server, client: SimSDClient) -> None:
    for megabytes in (server.args.max_body_bytes // 2**20 + 1, 65):
        with pytest.raises(CallError) as caught:
            client.generate("a" * (megabytes * 2**20))
        assert caught.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_health_and_reflection(server: Server) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        serving = health_pb2.HealthCheckResponse.SERVING
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=10).status == serving
        watch = health.Watch(health_pb2.HealthCheckRequest(service="simsd.v1.SimSDService"), timeout=10)
        assert next(watch).status == serving
        watch.cancel()
        services = ProtoReflectionDescriptorDatabase(channel).get_services()
        assert {"simsd.v1.SimSDService", "grpc.health.v1.Health"} <= set(services)
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/simsd.v1.SimSDService/Nothing")(b"", timeout=10)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def drop(client: AsyncSimSDClient, index: int, after_s: float, stream: bool) -> None:
    """Ask, and cancel after some time, wherever the answer is by then."""
    prompt = f"Write a function that adds two numbers. Number {index}."
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(after_s):
            if stream:
                async for _ in client.stream(prompt, seed=index, **LONG):
                    pass
            else:
                await client.generate(prompt, seed=index, **LONG)


async def test_fifty_calls_that_are_cancelled(async_client: AsyncSimSDClient) -> None:
    """Before the first token, in a block, between blocks: all pages come back in both engines."""
    async with asyncio.TaskGroup() as group:
        for index in range(50):
            group.create_task(drop(async_client, index, 0.05 + index * 0.03, stream=index % 2 == 0))
        await asyncio.sleep(1.0)
        assert not await asyncio.to_thread(nothing_held), "nobody was being served while they left"
    await asyncio.to_thread(wait_until, nothing_held, FREED_WITHIN_S)


@pytest.mark.parametrize("stream", [False, True])
def test_deadlines(client: SimSDClient, stream: bool) -> None:
    for timeout_s in (0.01, 0.3):
        with pytest.raises(CallError) as caught:
            ask(client, stream, timeout_s=timeout_s, **LONG)
        assert caught.value.code == grpc.StatusCode.DEADLINE_EXCEEDED
        wait_until(nothing_held, FREED_WITHIN_S)


async def test_a_slow_reader_does_not_hold_up_others(async_client: AsyncSimSDClient) -> None:
    long = LONG | {"max_tokens": 400}
    slow = async_client.stream("Hello", seed=1, events=True, logprobs=20, **long)
    await anext(slow)
    began = time.monotonic()
    answer = await async_client.generate(CHAT, max_tokens=16)
    assert answer.text
    assert time.monotonic() - began < 20
    parts = [part async for part in slow]
    assert parts[-1].usage.completion_tokens == long["max_tokens"]


async def test_malformed_messages(server: Server) -> None:
    async with grpc.aio.insecure_channel(server.grpc) as channel:
        for method, message in malformed(FUZZ_CASES // 5, seed=4):
            code = await raw_call(channel, method, message)
            assert code.name not in NEVER, (method, message)
    await asyncio.to_thread(wait_until, nothing_held, 5.0)


def test_documented_examples_run(server: Server, repository: Path) -> None:
    text = (repository / "docs" / "grpc.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for example in examples:
            exec(compile(example.replace("localhost:9000", server.grpc), "grpc.md", "exec"), {})
    assert printed.getvalue().count("Paris") >= 2
    assert "Rome" in printed.getvalue()
    assert "INVALID_ARGUMENT simsd.gamma" in printed.getvalue()
