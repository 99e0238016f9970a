"""Calls of the gRPC interface without Ray, and messages that nobody should send."""

import inspect
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
from google.protobuf.message import Message
from ray.serve.grpc_util import RayServegRPCContext

from deployments.ingress.grpc import GrpcMethods, add_services
from simsd_client.v1 import simsd_pb2

Call = Callable[..., Any]


@asynccontextmanager
async def serving(methods: GrpcMethods) -> AsyncIterator[str]:
    """A server that calls the methods as Serve's proxy and replica do; gives its address."""
    server = grpc.aio.server()
    add_services(_AsServeCalls(methods), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


class _AsServeCalls:
    """Bytes in, bytes out, and Serve's own context, whose state reaches the call with each message and only so."""

    def __init__(self, methods: GrpcMethods) -> None:
        self._methods = methods

    def __getattr__(self, name: str) -> Call:
        method = getattr(self._methods, name)

        async def unary(message: bytes, context: Any) -> bytes:
            ours = RayServegRPCContext(context)
            answer = await method(message, grpc_context=ours)
            ours._set_on_grpc_context(context)
            return answer.SerializeToString()

        async def stream(message: bytes, context: Any) -> AsyncIterator[bytes]:
            ours = RayServegRPCContext(context)
            async with aclosing(method(message, grpc_context=ours)) as answers:
                async for answer in answers:
                    ours._set_on_grpc_context(context)
                    yield answer.SerializeToString()

        return stream if inspect.isasyncgenfunction(method) else unary


def seeds() -> dict[str, Message]:
    """A message for each rpc, with every field set, as far as they go together."""
    request = simsd_pb2.GenerateRequest(
        messages=[
            simsd_pb2.Message(role=simsd_pb2.ROLE_SYSTEM, content="Be brief."),
            simsd_pb2.Message(role=simsd_pb2.ROLE_USER, content="What is the capital of France? 🌍"),
        ],
        max_tokens=4,
        min_tokens=1,
        temperature=0.5,
        top_p=0.9,
        top_k=20,
        min_p=0.01,
        seed=7,
        stop=["\n\n"],
        ignore_eos=False,
        logit_bias={11: -5.0},
        logprobs=2,
        simsd=simsd_pb2.SimSDOptions(
            method=simsd_pb2.METHOD_SIMSD,
            gamma=2,
            draft_steps=1,
            layout=simsd_pb2.LAYOUT_PAIRED,
            fallback=simsd_pb2.FALLBACK_REDRAFT,
            remasking=simsd_pb2.REMASKING_DYNAMIC,
            steps=2,
            threshold=0.9,
            entropy_bound=0.3,
            row_budget=64,
            drafter=simsd_pb2.DRAFTER_MODEL,
            routing=simsd_pb2.ROUTING_SCORE,
            routing_score=simsd_pb2.ROUTING_SCORE_ENTROPY,
            routing_cost=1.5,
            adaptive=True,
            lookahead=2,
        ),
    )
    request.chat_template_kwargs.update({"enable_thinking": False, "nested": {"list": [1, None, "x"]}})
    text = simsd_pb2.GenerateRequest(prompt="Hello", max_tokens=2)
    ids = simsd_pb2.GenerateRequest(prompt_token_ids=[11, 12, 13], max_tokens=3)
    return {
        "Generate": request,
        "GenerateStream": simsd_pb2.GenerateStreamRequest(request=request, events=True),
        "Generate of text": text,
        "Generate of ids": ids,
        "Tokenize": simsd_pb2.TokenizeRequest(prompt="Hello"),
        "ListModels": simsd_pb2.ListModelsRequest(),
    }


def malformed(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """(rpc, message): valid ones with bytes changed, cut, repeated or mixed, values out of range, and plain noise."""
    rng = random.Random(seed)
    valid = {name: message.SerializeToString() for name, message in seeds().items()}
    for _ in range(count):
        name = rng.choice(list(valid))
        method = name.split()[0]
        kind = rng.randrange(5)
        if kind == 0:
            yield method, rng.randbytes(rng.randrange(1, 200))
        elif kind == 1:
            yield method, _with_strange_values(seeds()[name], rng).SerializeToString()
        elif kind == 2:
            yield method, valid[name][: rng.randrange(len(valid[name]) + 1)]
        elif kind == 3:
            yield method, valid[name] + rng.choice(list(valid.values()))
        else:
            raw = bytearray(valid[name] or b"\0")
            for _ in range(rng.randrange(1, 6)):
                raw[rng.randrange(len(raw))] = rng.randrange(256)
            yield method, bytes(raw)


STRANGE: dict[str, list[Any]] = {
    "int": [0, 1, -1, 2**31 - 1, -(2**31), 77],
    "float": [0.0, -0.0, -1.0, 1e308, float("nan"), float("inf"), 5e-324],
    "str": ["", "\x00", "a" * 5000, "é\u202e🙈", "<|im_start|>", "<|MASK|>"],
}


def _with_strange_values(message: Message, rng: random.Random) -> Message:
    """Some scalar fields replaced, in the messages inside too. max_tokens stays small: a long answer is no error."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            if not field.message_type.GetOptions().map_entry and field.message_type.file.package == "simsd.v1":
                for child in value if field.is_repeated else [value]:
                    _with_strange_values(child, rng)
        elif rng.random() < 0.3 and field.name != "max_tokens":
            kind = "int" if field.enum_type else type(value[0] if field.is_repeated else value).__name__
            strange = rng.choice(STRANGE.get(kind, [value]))
            if field.is_repeated:
                value.append(strange if kind in STRANGE else value[0])
            else:
                setattr(message, field.name, strange)
    return message
