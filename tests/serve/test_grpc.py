"""The gRPC interface without Ray: a stand-in answers, and calls reach the methods as Serve brings them."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deployments.args import ServeArgs
from deployments.coordinator import ModelCard
from deployments.ingress.environment import IGNORE_UNKNOWN_FIELDS, KEYS
from deployments.ingress.grpc import MAX_MESSAGE_BYTES, SERVICE, GrpcMethods
from deployments.ingress.service import Service
from simsd.errors import ContextLengthError, QueueFullError, WorkerLostError
from simsd.messages.request import Output, Request, RoundEvent, Stats, TokenLogprob
from simsd.tokens.tokenizer import Tokenizer
from simsd_client import AsyncSimSDClient, CallError
from simsd_client.v1 import simsd_pb2
from tests.serve.grpc_calls import malformed, seeds, serving
from tests.serve.stand_in import Gathering

CONTEXT_TOKENS = 2048
MAX_BODY_BYTES = 32768
FUZZ_CASES = int(os.environ.get("SIMSD_FUZZ_CASES", "300"))
NEVER = {"INTERNAL", "UNKNOWN", "UNIMPLEMENTED", "UNAVAILABLE", "DEADLINE_EXCEEDED"}
"""What no message may make of a call."""


class StandIn:
    """Says "Paris" in two pieces, or what a test makes it do; keeps the request it was asked."""

    def __init__(self) -> None:
        self.asked: Request | None = None
        self.fail_first: Exception | None = None
        self.fail_later: Exception | None = None
        self.sick = False
        self.wait_s = 0.0
        self.closed = 0

    async def generate(self, request: Request) -> AsyncGenerator[Output, None]:
        self.asked = request
        report = request.report
        logprobs = [TokenLogprob(-0.5, [(11, -0.5), (12, -1.5)][: report.logprobs])] if report.logprobs else []
        events = [RoundEvent(1, -2, [(0, 11), (1, 13)], [(0, 11, "accepted"), (1, 12, "recovered")])]
        try:
            await asyncio.sleep(self.wait_s)
            if self.fail_first:
                raise self.fail_first
            yield Output([11, 12], "Par", logprobs=logprobs * 2, events=events if report.events else [])
            await asyncio.sleep(self.wait_s)
            if self.fail_later:
                raise self.fail_later
            stats = Stats(prompt_tokens=9, completion_tokens=3, cached_tokens=4, rounds=2, accept_histogram={1: 2})
            yield Output([13], "is", "stop", stats, logprobs=logprobs)
        finally:
            self.closed += 1

    async def load(self) -> tuple[int, int]:
        if self.sick:
            raise WorkerLostError("gone", "target")
        return 1, 2


@pytest.fixture
def stand_in() -> StandIn:
    return StandIn()


def methods_of(tokenizer: Tokenizer, stand_in: StandIn) -> GrpcMethods:
    assert tokenizer.mask_token_id is not None
    card = ModelCard("tiny", 4, tokenizer.mask_token_id, CONTEXT_TOKENS)
    return GrpcMethods(Service(ServeArgs(max_body_bytes=MAX_BODY_BYTES), card, tokenizer, Gathering(stand_in)))


@pytest.fixture
async def target(tokenizer: Tokenizer, stand_in: StandIn) -> AsyncIterator[str]:
    async with serving(methods_of(tokenizer, stand_in)) as target:
        yield target


@pytest.fixture
async def client(target: str) -> AsyncIterator[AsyncSimSDClient]:
    async with AsyncSimSDClient(target) as client:
        yield client


@pytest.fixture
async def channel(target: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(target) as channel:
        yield channel


async def ask(client: AsyncSimSDClient, prompt: Any = "Hello", stream: bool = False, **options: Any) -> None:
    if stream:
        _ = [part async for part in client.stream(prompt, **options)]
    else:
        await client.generate(prompt, **options)


async def refused(client: AsyncSimSDClient, prompt: Any = "Hello", **options: Any) -> CallError:
    """What a call is refused with."""
    with pytest.raises(CallError) as caught:
        await ask(client, prompt, **options)
    return caught.value


async def raw_call(channel: grpc.aio.Channel, method: str, message: bytes) -> grpc.StatusCode:
    """The code that bytes end with, whatever they are."""
    path = f"/{SERVICE.full_name}/{method}"
    try:
        if method == "GenerateStream":
            async for _ in channel.unary_stream(path)(message, timeout=20):
                pass
        else:
            await channel.unary_unary(path)(message, timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_whole_answer(client: AsyncSimSDClient, tokenizer: Tokenizer) -> None:
    answer = await client.generate([{"role": "user", "content": "Hello"}], logprobs=1)
    assert (answer.text, list(answer.token_ids), answer.model) == ("Paris", [11, 12, 13], "tiny")
    assert answer.finish_reason == simsd_pb2.FINISH_REASON_STOP
    assert answer.id
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.cached_tokens) == (9, 3, 4)
    assert (answer.stats.rounds, dict(answer.stats.accept_histogram)) == (2, {1: 2})
    assert [entry.token_id for entry in answer.logprobs] == [11, 12, 13]
    assert [entry.token for entry in answer.logprobs] == [tokenizer.token_bytes(token) for token in (11, 12, 13)]
    assert [(top.token_id, top.logprob) for top in answer.logprobs[0].top] == [(11, -0.5)]


async def test_streamed_answer(client: AsyncSimSDClient) -> None:
    first, last = [part async for part in client.stream("Hello", logprobs=1)]
    assert (first.text, list(first.token_ids), len(first.logprobs)) == ("Par", [11, 12], 2)
    assert first.finish_reason == simsd_pb2.FINISH_REASON_UNSPECIFIED
    assert not first.HasField("usage")
    assert not first.events
    assert (last.text, last.finish_reason) == ("is", simsd_pb2.FINISH_REASON_STOP)
    assert (last.usage.completion_tokens, last.stats.rounds) == (3, 2)
    assert first.id == last.id != ""


async def test_events(client: AsyncSimSDClient, tokenizer: Tokenizer, stand_in: StandIn) -> None:
    first, _ = [part async for part in client.stream("Hello", events=True)]
    assert stand_in.asked is not None
    assert stand_in.asked.report.events
    (event,) = first.events
    assert (event.round, event.start, event.block_size) == (1, -2, 4)
    assert [(token.index, token.token_id) for token in event.drafted] == [(0, 11), (1, 13)]
    assert [(token.index, token.token_id, token.kind) for token in event.reveals] == [
        (0, 11, simsd_pb2.REVEAL_KIND_ACCEPTED),
        (1, 12, simsd_pb2.REVEAL_KIND_RECOVERED),
    ]
    assert event.reveals[1].token == tokenizer.token_bytes(12)


async def test_every_field_reaches_the_request(channel: grpc.aio.Channel, stand_in: StandIn) -> None:
    assert await raw_call(channel, "Generate", seeds()["Generate"].SerializeToString()) == grpc.StatusCode.OK
    assert stand_in.asked is not None
    params = stand_in.asked.params
    assert (params.max_tokens, params.min_tokens, params.temperature, params.top_p) == (4, 1, 0.5, 0.9)
    assert (params.top_k, params.min_p, params.seed, params.stop) == (20, 0.01, 7, ("\n\n",))
    assert (params.ignore_eos, params.logit_bias) == (False, ((11, -5.0),))
    assert (params.method, params.gamma, params.draft_steps, params.layout) == ("simsd", 2, 1, "paired")
    assert (params.fallback, params.remasking, params.steps) == ("redraft", "dynamic", 2)
    assert (params.threshold, params.entropy_bound, params.row_budget) == (0.9, 0.3, 64)
    assert (params.drafter, params.routing) == ("model", "score")
    assert (params.routing_score, params.routing_cost, params.adaptive) == ("entropy", 1.5, True)
    assert params.lookahead == 2
    assert stand_in.asked.report.logprobs == 2


async def test_zero_is_a_value(client: AsyncSimSDClient, stand_in: StandIn) -> None:
    """A field that is set to 0 is not the same as one that is not set."""
    await client.generate("Hello", temperature=0.0, top_k=0, logprobs=0, seed=0)
    assert stand_in.asked is not None
    assert stand_in.asked.report.logprobs == 0
    assert (await refused(client, max_tokens=0)).field == "max_tokens"


async def test_an_unspecified_enum_is_not_set(channel: grpc.aio.Channel, stand_in: StandIn) -> None:
    request = simsd_pb2.GenerateRequest(prompt="Hello", simsd=simsd_pb2.SimSDOptions(method=0))
    assert await raw_call(channel, "Generate", request.SerializeToString()) == grpc.StatusCode.OK
    assert stand_in.asked is not None
    assert stand_in.asked.params.method == "simsd"


BAD = [
    ({"max_tokens": -1}, "max_tokens"),
    ({"temperature": float("nan")}, "temperature"),
    ({"top_p": 0.0}, "top_p"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"logprobs": 21}, "logprobs"),
    ({"logit_bias": {-5: 1.0}}, "logit_bias"),
    ({"logit_bias": {5: 101.0}}, "logit_bias"),
    ({"gamma": 5}, "simsd.gamma"),
    ({"gamma": 2, "draft_steps": 3}, "simsd.draft_steps"),
    ({"drafter": "self", "fallback": "target"}, "simsd.fallback"),
    ({"threshold": 2.0}, "simsd.threshold"),
]
INPUTS = ["Hello", [11, 12], [{"role": "user", "content": "Hello"}]]


@pytest.mark.parametrize("prompt", INPUTS, ids=["text", "ids", "chat"])
@pytest.mark.parametrize(("options", "field"), BAD, ids=lambda value: str(value)[:40])
async def test_bad_values_are_named(
    client: AsyncSimSDClient, options: dict[str, object], field: str, prompt: object
) -> None:
    error = await refused(client, prompt, **options)
    assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)
    assert field.rsplit(".", 1)[-1] in str(error)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (simsd_pb2.GenerateRequest(), "prompt"),
        (simsd_pb2.GenerateRequest(prompt=""), "prompt"),
        (simsd_pb2.GenerateRequest(prompt="x", prompt_token_ids=[1]), "prompt_token_ids"),
        (simsd_pb2.GenerateRequest(prompt_token_ids=[-1]), "prompt_token_ids"),
        (simsd_pb2.GenerateRequest(prompt_token_ids=[10**8]), "prompt_token_ids"),
        (simsd_pb2.GenerateRequest(messages=[simsd_pb2.Message(content="x")]), "messages[0].role"),
        (simsd_pb2.GenerateRequest(messages=[simsd_pb2.Message(role=77)]), "messages[0].role"),
        (simsd_pb2.GenerateRequest(prompt="x", simsd=simsd_pb2.SimSDOptions(method=9)), "simsd.method"),
        (simsd_pb2.GenerateRequest(prompt="x", chat_template_kwargs={}), "chat_template_kwargs"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_bad_messages_are_named(channel: grpc.aio.Channel, request_: Message, field: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(f"/{SERVICE.full_name}/Generate")(request_.SerializeToString())
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert details_of(caught.value, error_details_pb2.BadRequest()).field_violations[0].field == field


def details_of(error: grpc.aio.AioRpcError, detail: Message) -> Message:
    """The detail of this kind, as any client in any language finds it."""
    raw = dict(error.trailing_metadata())["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(raw)
    assert (status.code, status.message) == (error.code().value[0], error.details())
    assert any(one.Unpack(detail) for one in status.details)
    return detail


async def test_unknown_fields_are_refused(
    channel: grpc.aio.Channel, tokenizer: Tokenizer, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = simsd_pb2.GenerateRequest(prompt="x", simsd=simsd_pb2.SimSDOptions.FromString(b"\xa0\x06\x01"))
    for message in (b'\x12\x01x"\x00\xa0\x06\x01', inside.SerializeToString()):
        assert await raw_call(channel, "Generate", message) == grpc.StatusCode.INVALID_ARGUMENT
    monkeypatch.setenv(IGNORE_UNKNOWN_FIELDS, "1")
    async with serving(methods_of(tokenizer, stand_in)) as target, grpc.aio.insecure_channel(target) as channel:
        assert await raw_call(channel, "Generate", inside.SerializeToString()) == grpc.StatusCode.OK


@pytest.mark.parametrize("stream", [False, True])
async def test_codes_and_details_of_refusals(client: AsyncSimSDClient, stand_in: StandIn, stream: bool) -> None:
    stand_in.fail_first = QueueFullError("full", 3)
    error = await refused(client, stream=stream)
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
    assert error.retry_after_s == 3
    stand_in.fail_first = ContextLengthError("too long", "max_tokens")
    error = await refused(client, stream=stream)
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "CONTEXT_LENGTH_EXCEEDED")
    assert error.field == "max_tokens"
    stand_in.fail_first = WorkerLostError("secret", "target")
    error = await refused(client, stream=stream)
    assert error.code == grpc.StatusCode.UNAVAILABLE
    assert error.retry_after_s is not None
    assert "secret" not in str(error)
    stand_in.fail_first = ZeroDivisionError("secret")
    error = await refused(client, stream=stream)
    assert (error.code, str(error)) == (grpc.StatusCode.INTERNAL, "internal error")
    error = await refused(client, stream=stream, model="gpt-4")
    assert (error.code, error.field) == (grpc.StatusCode.NOT_FOUND, "model")
    assert stand_in.closed == 4


async def test_a_stream_that_breaks_keeps_what_came(client: AsyncSimSDClient, stand_in: StandIn) -> None:
    stand_in.fail_later = WorkerLostError("secret", "target")
    stream = client.stream("Hello")
    assert (await anext(stream)).text == "Par"
    with pytest.raises(CallError) as caught:
        await anext(stream)
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE


async def test_an_error_message_fits_into_trailers(client: AsyncSimSDClient, stand_in: StandIn) -> None:
    stand_in.fail_first = ContextLengthError("ж" * 20000, "max_tokens")
    error = await refused(client)
    assert error.field == "max_tokens"
    assert MAX_MESSAGE_BYTES - 4 < len(str(error).encode()) <= MAX_MESSAGE_BYTES + 4


async def test_size_limit(client: AsyncSimSDClient) -> None:
    error = await refused(client, "a " * MAX_BODY_BYTES)
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "REQUEST_TOO_LARGE")
    assert str(MAX_BODY_BYTES) in str(error)


async def test_keys(tokenizer: Tokenizer, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS, "open-sesame,other")
    async with serving(methods_of(tokenizer, stand_in)) as target:
        for key in (None, "wrong"):
            async with AsyncSimSDClient(target, key) as client:
                error = await refused(client, stream=key is None)
                assert (error.code, error.reason) == (grpc.StatusCode.UNAUTHENTICATED, "INVALID_API_KEY")
                with pytest.raises(CallError):
                    await client.models()
        assert stand_in.asked is None
        async with AsyncSimSDClient(target, "other") as client:
            assert (await client.generate("Hello")).text == "Paris"
        async with grpc.aio.insecure_channel(target) as channel:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())


async def test_models_and_tokens(client: AsyncSimSDClient, tokenizer: Tokenizer) -> None:
    (model,) = await client.models()
    assert (model.name, model.context_tokens, model.block_size) == ("tiny", CONTEXT_TOKENS, 4)
    assert await client.tokenize("Hello") == tokenizer.encode("Hello")
    turns = [{"role": "user", "content": "Hello"}]
    assert await client.tokenize(turns) == tokenizer.encode_messages(turns)
    for prompt, model_name, field in (("", None, "prompt"), ("x", "gpt-4", "model")):
        with pytest.raises(CallError) as caught:
            await client.tokenize(prompt, model=model_name)
        assert caught.value.field == field


async def test_request_ids(channel: grpc.aio.Channel) -> None:
    request = simsd_pb2.GenerateRequest(prompt="Hello").SerializeToString()
    generate = channel.unary_unary(f"/{SERVICE.full_name}/Generate")
    for given, kept in (("my-id", True), ("two words", False)):
        call = generate(request, metadata=(("x-request-id", given),))
        await call
        returned = dict(await call.trailing_metadata())["x-request-id"]
        assert (returned == given) is kept
        assert returned


async def test_health(channel: grpc.aio.Channel, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.ingress.grpc.WATCH_EVERY_S", 0.02)
    serving_, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    health = health_pb2_grpc.HealthStub(channel)
    for name in ("", SERVICE.full_name):
        assert (await health.Check(health_pb2.HealthCheckRequest(service=name))).status == serving_
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health.Check(health_pb2.HealthCheckRequest(service="other"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert set((await health.List(health_pb2.HealthListRequest())).statuses) == {"", SERVICE.full_name}
    unknown = health.Watch(health_pb2.HealthCheckRequest(service="other"))
    assert (await unknown.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch = health.Watch(health_pb2.HealthCheckRequest())
    for sick, status in ((False, serving_), (True, not_serving), (False, serving_)):
        stand_in.sick = sick
        assert (await watch.read()).status == status
    watch.cancel()
    unknown.cancel()


@pytest.mark.parametrize("stream", [False, True])
async def test_cancelling_and_deadlines_close_the_answer(
    client: AsyncSimSDClient, stand_in: StandIn, stream: bool
) -> None:
    stand_in.wait_s = 30.0
    error = await refused(client, stream=stream, timeout_s=0.2)
    assert error.code == grpc.StatusCode.DEADLINE_EXCEEDED
    task = asyncio.create_task(ask(client, stream=stream))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(200):
        await asyncio.sleep(0.01)
        if stand_in.closed == 2:
            return
    pytest.fail(f"{stand_in.closed} of 2 were closed")


async def test_malformed_messages(channel: grpc.aio.Channel) -> None:
    """2,000 by SIMSD_FUZZ_CASES=2000; every call ends with an answer or a refusal of the caller's fault."""
    codes: Counter[str] = Counter()
    for method, message in malformed(FUZZ_CASES, seed=3):
        code = await raw_call(channel, method, message)
        codes[code.name] += 1
        assert code.name not in NEVER, (method, message)
    print(dict(codes))
    assert codes["OK"] and codes["INVALID_ARGUMENT"] > FUZZ_CASES / 4
