"""What an answer may cost: deadlines, limits of a key, and coordinators that are lost meanwhile."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import httpx
import pytest

from deployments.args import ServeArgs
from deployments.coordinator import ModelCard
from deployments.ingress.environment import KEYS
from deployments.ingress.errors import CoordinatorLostError
from deployments.ingress.grpc import GrpcMethods
from deployments.ingress.service import Service
from simsd.errors import ConfigError
from simsd.messages.request import Output, Request
from simsd.tokens.tokenizer import Tokenizer
from simsd_client import AsyncSimSDClient, CallError
from tests.serve.grpc_calls import serving
from tests.serve.sse import chunks
from tests.serve.stand_in import BLOCK_SIZE, CONTEXT_TOKENS, SPEECH, Gathering, Reciter, build_app, client_of
from tests.unit.loops import settled

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}


class Gated(Reciter):
    """Recites once `gate` is open; loses its coordinator as often as `losses` says, after so many outputs each."""

    def __init__(self, tokenizer: Tokenizer, *losses: int) -> None:
        super().__init__(tokenizer)
        self.gate = asyncio.Event()
        self.losses = list(losses)

    async def generate(self, request: Request) -> AsyncGenerator[Output, None]:
        self.open += 1
        try:
            await self.gate.wait()
            left = self.losses.pop(0) if self.losses else None
            for output in self._recital(request):
                if left == 0:
                    raise CoordinatorLostError("gone")
                left = left - 1 if left else left
                yield output
        finally:
            self.open -= 1


@pytest.fixture
def gated(tokenizer: Tokenizer) -> Gated:
    return Gated(tokenizer)


@asynccontextmanager
async def grpc_client(tokenizer: Tokenizer, backend: Gated, **args: Any) -> AsyncIterator[AsyncSimSDClient]:
    assert tokenizer.mask_token_id is not None
    card = ModelCard("tiny", BLOCK_SIZE, tokenizer.mask_token_id, CONTEXT_TOKENS)
    methods = GrpcMethods(Service(ServeArgs(**args), card, tokenizer, Gathering(backend)))
    async with serving(methods) as target, AsyncSimSDClient(target) as client:
        yield client


def error_of(response: httpx.Response, status: int) -> Any:
    assert response.status_code == status, response.text
    return response.json()["error"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("by", ["client", "server"])
async def test_a_deadline_ends_what_waits(tokenizer: Tokenizer, gated: Gated, by: str, stream: bool) -> None:
    """With a status, as nothing was sent yet; all choices of it are given up."""
    args = {"request_timeout_s": 0.1 if by == "server" else 60}
    headers = {"x-request-timeout": "0.1" if by == "client" else "60"}
    async with client_of(build_app(tokenizer, gated, **args)) as client:
        response = await client.post(CHAT, json=HELLO | {"n": 3, "stream": stream}, headers=headers)
    error = error_of(response, 504)
    assert (error["code"], error["type"]) == ("deadline_exceeded", "server_error")
    assert "0.1 s" in error["message"]
    assert gated.open == 0


async def test_a_deadline_in_a_stream_is_its_last_event(tokenizer: Tokenizer) -> None:
    class Stops(Reciter):
        async def generate(self, request: Request) -> AsyncGenerator[Output, None]:
            yield self._recital(request)[0]
            await asyncio.Event().wait()

    async with client_of(build_app(tokenizer, Stops(tokenizer))) as client:
        response = await client.post(CHAT, json=HELLO | {"stream": True}, headers={"x-request-timeout": "0.2"})
    assert response.status_code == 200
    assert "deadline_exceeded" in response.text.strip().split("\n\n")[-1]


async def test_a_deadline_that_is_not_met_changes_nothing(tokenizer: Tokenizer, gated: Gated) -> None:
    gated.gate.set()
    async with client_of(build_app(tokenizer, gated, request_timeout_s=30)) as client:
        body = (await client.post(CHAT, json=HELLO, headers={"x-request-timeout": "20"})).json()
    assert body["choices"][0]["message"]["content"] == SPEECH


@pytest.mark.parametrize("given", ["", "soon", "0", "-1", "nan", "inf", "1s"])
async def test_no_time_to_wait(tokenizer: Tokenizer, gated: Gated, given: str) -> None:
    async with client_of(build_app(tokenizer, gated)) as client:
        error = error_of(await client.post(CHAT, json=HELLO, headers={"x-request-timeout": given}), 400)
    assert error["param"] == "x-request-timeout"
    assert "seconds above 0" in error["message"]


async def test_the_servers_limit_over_grpc(tokenizer: Tokenizer, gated: Gated) -> None:
    async with grpc_client(tokenizer, gated, request_timeout_s=0.1) as client:
        with pytest.raises(CallError) as caught:
            await client.generate("Hello")
        assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
        with pytest.raises(CallError, match=r"0\.1 s"):
            _ = [part async for part in client.stream("Hello")]
    assert gated.open == 0


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS, "one,two")


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_at_its_limit(tokenizer: Tokenizer, gated: Gated, stream: bool) -> None:
    """The third waits for neither of the first two; another key is served; an answer makes room again."""
    async with client_of(build_app(tokenizer, gated, max_requests_per_key=2)) as client:
        body = HELLO | {"stream": stream}
        under_way = [asyncio.create_task(client.post(CHAT, json=body, headers=bearer("one"))) for _ in range(2)]
        await settled(lambda: gated.open == 2)
        refused = await client.post(CHAT, json=body, headers=bearer("one"))
        error = error_of(refused, 429)
        assert (error["code"], refused.headers["retry-after"]) == ("rate_limit_exceeded", "1")
        other = asyncio.create_task(client.post(CHAT, json=body, headers=bearer("two")))
        await settled(lambda: gated.open == 3)
        gated.gate.set()
        assert {response.status_code for response in await asyncio.gather(*under_way, other)} == {200}
        assert (await client.post(CHAT, json=body, headers=bearer("one"))).status_code == 200


@pytest.mark.usefixtures("keys")
async def test_who_leaves_makes_room(tokenizer: Tokenizer, gated: Gated) -> None:
    async with client_of(build_app(tokenizer, gated, max_requests_per_key=1)) as client:
        call = asyncio.create_task(client.post(CHAT, json=HELLO, headers=bearer("one")))
        await settled(lambda: gated.open == 1)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        gated.gate.set()
        assert (await client.post(CHAT, json=HELLO, headers=bearer("one"))).status_code == 200


async def test_a_limit_of_each_key_needs_keys(tokenizer: Tokenizer, gated: Gated) -> None:
    with pytest.raises(ConfigError, match=f"max_requests_per_key needs keys: set {KEYS}"):
        build_app(tokenizer, gated, max_requests_per_key=1)


@pytest.mark.parametrize("losses", [(0,), (3,), (1, 2)])
async def test_a_lost_coordinator_costs_a_whole_answer_time_only(tokenizer: Tokenizer, losses: tuple[int, ...]) -> None:
    backend = Gated(tokenizer, *losses)
    backend.gate.set()
    async with client_of(build_app(tokenizer, backend)) as client:
        body = (await client.post(CHAT, json=HELLO)).json()
    assert body["choices"][0]["message"]["content"] == SPEECH
    assert body["usage"]["completion_tokens"] == len(tokenizer.encode(SPEECH))


async def test_three_lost_coordinators_are_enough(tokenizer: Tokenizer) -> None:
    backend = Gated(tokenizer, 0, 1, 2)
    backend.gate.set()
    async with client_of(build_app(tokenizer, backend)) as client:
        response = await client.post(CHAT, json=HELLO)
    assert error_of(response, 503)["code"] == "unavailable"
    assert response.headers["retry-after"] == "5"


async def test_a_stream_is_never_told_twice(tokenizer: Tokenizer) -> None:
    """Lost before its first output it begins elsewhere; later it ends in an error that says to try again."""
    backend = Gated(tokenizer, 0, 2)
    backend.gate.set()
    body = HELLO | {"stream": True}
    async with client_of(build_app(tokenizer, backend)) as client:
        lost = await client.post(CHAT, json=body)
        assert lost.status_code == 200
        *parts, last = lost.text.strip().split("\n\n")
        assert "unavailable" in last
        assert len(parts) == 3, "the role and two outputs"
        async with client.stream("POST", CHAT, json=body) as response:
            told = [chunk["choices"][0]["delta"].get("content") or "" async for chunk in chunks(response)]
    assert "".join(told) == SPEECH
