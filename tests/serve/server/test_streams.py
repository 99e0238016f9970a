"""Streams say what answers say that are not streamed, however they end; and what readers do who are slow or leave."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, get_args

import httpx
import pytest

from simsd.eval.families import FAMILIES
from simsd.messages.request import Drafter, Fallback, Layout, Remasking, Routing, RoutingScore
from simsd.tokens.tokenizer import Tokenizer
from tests.serve.cluster import FREED_WITHIN_S, held, wait_until
from tests.serve.server.conftest import TIMEOUT_S, Server
from tests.serve.sse import chunks
from tests.unit.tokens.test_text import cut_at_stop

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
AT_ONCE = 32
FRANCE = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}
QUESTIONS = [question.prompt for family in FAMILIES.values() for question in family.questions("heldout", 5, seed=1)]
SCRIPTS = ["日本語のテスト", "🙂🙃 emoji 👩‍👩‍👧", "Grüße, straße", "שלום", "\t\n  ", "a"]

WAYS: list[dict[str, Any]] = [
    *({"method": "vanilla", "remasking": remasking} for remasking in get_args(Remasking)),
    *(
        {"method": "simsd", "layout": layout, "fallback": fallback, "drafter": drafter}
        for layout, fallback, drafter in itertools.product(*map(get_args, (Layout, Fallback, Drafter)))
    ),
    *({"method": "exact", "drafter": drafter} for drafter in get_args(Drafter)),
    *({"method": "s2d2", "routing": routing} for routing in get_args(Routing)),
]
"""Every method, with all its remaskings, layouts, fallbacks, drafters and routings."""
ONE_OF_EACH: list[dict[str, Any]] = [
    {"method": "vanilla"},
    {"method": "simsd"},
    {"method": "simsd", "layout": "branches", "fallback": "target", "gamma": 2},
    {"method": "exact"},
    {"method": "exact", "drafter": "self"},
    {"method": "s2d2", "remasking": "dynamic"},
]


@dataclass
class Choice:
    """What both forms of an answer say of one choice. `spelled` are its tokens' bytes, where chat tells them."""

    text: str = ""
    reason: str | None = None
    tokens: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spelled: list[bytes] = field(default_factory=list)

    def add(self, part: dict[str, Any]) -> None:
        """A choice of a whole answer, or of a chunk."""
        said = part.get("message") or part.get("delta") or part
        self.text += said.get("text") or said.get("content") or ""
        self.reason = part["finish_reason"] or self.reason
        told = part["logprobs"] or {}
        for one in told.get("content", ()):
            self.tokens.append(one["token"])
            self.logprobs.append(one["logprob"])
            self.spelled.append(bytes(one["bytes"] or ()))
        self.tokens += told.get("tokens", ())
        self.logprobs += told.get("token_logprobs", ())


@dataclass
class Answer:
    choices: list[Choice]
    prompt_tokens: int
    completion_tokens: int


def path_of(body: dict[str, Any]) -> str:
    return CHAT if "messages" in body else TEXT


async def whole(client: httpx.AsyncClient, body: dict[str, Any]) -> Answer:
    response = await client.post(path_of(body), json=body)
    assert response.status_code == 200, response.text
    return _joined([response.json()], body)


async def streamed(client: httpx.AsyncClient, body: dict[str, Any]) -> Answer:
    asked = body | {"stream": True, "stream_options": {"include_usage": True}}
    async with client.stream("POST", path_of(body), json=asked) as response:
        return _joined([chunk async for chunk in chunks(response)], body)


def _joined(parts: list[Any], body: dict[str, Any]) -> Answer:
    choices = [Choice() for _ in range(body.get("n", 1))]
    for part in parts:
        for choice in part["choices"]:
            choices[choice["index"]].add(choice)
    usage = parts[-1]["usage"]
    return Answer(choices, usage["prompt_tokens"], usage["completion_tokens"])


def assert_same(one: Answer, other: Answer, body: dict[str, Any]) -> None:
    """Byte for byte; log-probabilities up to what the other requests of a batch do to the order of sums."""
    for mine, theirs in zip(one.choices, other.choices, strict=True):
        assert mine.text.encode() == theirs.text.encode(), body
        assert (mine.reason, mine.tokens, mine.spelled) == (theirs.reason, theirs.tokens, theirs.spelled), body
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-3), body
    counts = (one.prompt_tokens, one.completion_tokens)
    assert counts == (other.prompt_tokens, other.completion_tokens), body


@pytest.fixture
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=AT_ONCE)
    timeout = httpx.Timeout(TIMEOUT_S, pool=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=timeout, limits=limits) as client:
        yield client


async def both(client: httpx.AsyncClient, bodies: list[dict[str, Any]]) -> list[tuple[Answer, Answer]]:
    """Each body's answer, whole and streamed, all at once; a body's two answers meet different batches."""
    wholes, streams = await asyncio.gather(
        asyncio.gather(*(whole(client, body) for body in bodies)),
        asyncio.gather(*(streamed(client, body) for body in reversed(bodies))),
    )
    return list(zip(wholes, reversed(streams), strict=True))


def random_body(rng: Random, way: dict[str, Any]) -> dict[str, Any]:
    """A request for this way of decoding, with everything else drawn."""
    gamma = rng.choice([0, 1, 2, 3, 4])
    options = {"gamma": gamma, "draft_steps": rng.randint(0, gamma), "steps": rng.choice([0, 1, 2, 4])}
    options |= {"threshold": rng.uniform(0.5, 1), "entropy_bound": rng.uniform(0, 1)}
    options |= {"remasking": rng.choice(get_args(Remasking)), "routing_score": rng.choice(get_args(RoutingScore))}
    body: dict[str, Any] = {"simsd": options | way, "max_tokens": rng.randint(1, 24), "seed": rng.randrange(10**6)}
    body |= {"temperature": rng.choice([0, 0.7, 1, 2]), "top_p": rng.choice([1, 0.9]), "top_k": rng.choice([0, 50])}
    body |= {"ignore_eos": rng.random() < 0.5, "n": rng.choice([1, 1, 1, 2]), "min_p": rng.choice([0, 0.01])}
    body["min_tokens"] = rng.choice([0, rng.randint(0, body["max_tokens"])])
    if rng.random() < 0.5:
        body["stop"] = rng.sample(["e", " is", "\n", "####", "the answer", "1", "?"], rng.randint(1, 4))
    if rng.random() < 0.6:
        body["messages"] = [{"role": "user", "content": rng.choice(QUESTIONS + SCRIPTS)}]
        body |= rng.choice([{}, {"logprobs": True, "top_logprobs": 2}])
    else:
        body |= {"prompt": rng.choice(QUESTIONS + SCRIPTS), "echo": rng.random() < 0.5}
        body |= rng.choice([{}, {"logprobs": 2}])
    return body


@pytest.mark.parametrize("requests", [2 * len(WAYS), pytest.param(300, marks=pytest.mark.slow)])
async def test_streamed_is_not_streamed(client: httpx.AsyncClient, requests: int) -> None:
    rng = Random(3)
    bodies = [random_body(rng, WAYS[index % len(WAYS)]) for index in range(requests)]
    answers = await both(client, bodies)
    for body, (one, other) in zip(bodies, answers, strict=True):
        assert_same(one, other, body)
    choices = [choice for one, _ in answers for choice in one.choices]
    assert {choice.reason for choice in choices} == {"stop", "length"}
    assert sum(len(choice.text) for choice in choices) > 10 * requests


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_every_max_tokens(client: httpx.AsyncClient, way: dict[str, Any]) -> None:
    """The answer ends after exactly so many tokens, wherever in a block that is, or before at the end of turn."""
    body = FRANCE | {"logprobs": True, "simsd": way}
    full = await streamed(client, body)
    [choice] = full.choices
    assert ("Paris" in choice.text, choice.reason) == (True, "stop")
    count = full.completion_tokens
    cut = [body | {"max_tokens": limit} for limit in range(1, count + 2)]
    for limit, (one, other) in enumerate(await both(client, cut), start=1):
        assert_same(one, other, cut[limit - 1])
        assert other.choices[0].text.encode() == b"".join(choice.spelled[:limit])
        assert other.choices[0].reason == ("length" if limit <= count else "stop")
        assert other.completion_tokens == min(limit, count)
    [(one, other)] = await both(client, [body | {"max_tokens": count + 7, "ignore_eos": True}])
    assert_same(one, other, body)
    assert (other.choices[0].reason, other.completion_tokens) == ("length", count + 7)
    assert other.choices[0].text.startswith(choice.text)


@pytest.mark.parametrize("way", ONE_OF_EACH, ids=str)
async def test_stop_strings(client: httpx.AsyncClient, way: dict[str, Any]) -> None:
    """Anything that the answer says may be where it stops; nothing of it comes out, and all before it does."""
    rng = Random(str(way))
    body = FRANCE | {"temperature": 1.5, "seed": 4, "max_tokens": 32, "ignore_eos": True, "simsd": way}
    text = (await whole(client, body)).choices[0].text
    assert len(text) > 20
    bodies = []
    for _ in range(12):
        starts = [rng.randrange(len(text)) for _ in range(rng.randint(1, 3))]
        said = [text[start : start + rng.randint(1, 8)] for start in starts]
        bodies.append(body | {"stop": [*said, said[0] + "☃"]})
    bodies.append(body | {"stop": text + "☃"})
    for asked, (one, other) in zip(bodies, await both(client, bodies), strict=True):
        assert_same(one, other, asked)
        stop = asked["stop"]
        expected, stopped = cut_at_stop(text, (stop,) if isinstance(stop, str) else tuple(stop))
        assert (other.choices[0].text, other.choices[0].reason) == (expected, "stop" if stopped else "length"), stop


@pytest.mark.parametrize(
    "character", [pytest.param("é", marks=pytest.mark.slow), "日", pytest.param("🟠", marks=pytest.mark.slow)]
)
async def test_characters_split_over_tokens(client: httpx.AsyncClient, tokenizer: Tokenizer, character: str) -> None:
    """Answers of nothing but one character's bytes, in any order: whole characters, broken ones, and a stop at it."""
    ids = tokenizer.encode(character)
    assert len(ids) == len(character.encode()), "a token for each byte"
    body: dict[str, Any] = FRANCE | {"logit_bias": {str(token): 100 for token in ids}, "temperature": 5, "seed": 1}
    body |= {"n": 4, "max_tokens": 20, "logprobs": True}
    bodies = [body | {"simsd": way} for way in ONE_OF_EACH]
    answers = await both(client, bodies)
    stopped = await both(client, [asked | {"stop": character} for asked in bodies])
    texts = []
    for asked, (one, other), (one_stopped, other_stopped) in zip(bodies, answers, stopped, strict=True):
        assert_same(one, other, asked)
        assert_same(one_stopped, other_stopped, asked)
        for full, cut in zip(other.choices, other_stopped.choices, strict=True):
            assert set(full.spelled) <= {bytes([byte]) for byte in character.encode()}
            assert full.text == b"".join(full.spelled).decode(errors="replace")
            expected, found = cut_at_stop(full.text, (character,))
            assert (cut.text, cut.reason) == (expected, "stop" if found else "length")
            texts.append(full.text)
    assert any(character in text for text in texts)
    assert any("\ufffd" in text for text in texts)


LONG: dict[str, Any] = FRANCE | {"temperature": 1, "seed": 2, "max_tokens": 400, "min_tokens": 400}
"""Text to the end: with ignore_eos alone it would go on with ends of turn, which have none."""


async def test_a_slow_reader_does_not_hold_up_others(server: Server, client: httpx.AsyncClient) -> None:
    """Nothing is read from the middle of a long stream for two seconds, through a small window; others are answered."""
    body = LONG | {"max_tokens": 250, "min_tokens": 250, "logprobs": True, "top_logprobs": 20}
    asked = body | {"stream": True, "stream_options": {"include_usage": True}, "simsd": {"events": True}}
    window = httpx.AsyncHTTPTransport(socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)])
    slow = httpx.AsyncClient(base_url=server.url, transport=window, timeout=TIMEOUT_S)
    async with slow, slow.stream("POST", CHAT, json=asked) as response:
        parts = []
        async for part in chunks(response):
            parts.append(part)
            if len(parts) == 20:
                pause = asyncio.create_task(asyncio.sleep(2))
                others = await asyncio.gather(*(streamed(client, FRANCE) for _ in range(8)))
                assert all("Paris" in other.choices[0].text for other in others)
                await pause
                opened = response.extensions["network_stream"].get_extra_info("socket")
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)  # what is left comes at full speed
    assert len(parts) > 100
    assert_same(_joined(parts, body), await whole(client, body), body)


def nothing_held() -> bool:
    return set(held().values()) == {(0, 0)}


async def leave(client: httpx.AsyncClient, way: dict[str, Any], in_a_block: bool) -> None:
    """Hang up when the stream's events say that the block has open positions, or that it is full.

    That is what a client sees: the loop may be a round further by then.
    """
    asked = LONG | {"stream": True, "simsd": way | {"events": True}}
    revealed: set[int] = set()
    async with client.stream("POST", CHAT, json=asked) as response:
        async for chunk in chunks(response):
            if event := chunk.get("simsd", {}).get("event"):
                revealed |= {reveal["index"] for reveal in event["reveals"]}
                block = range(max(0, event["start"]), event["start"] + event["block_size"])
                if event["start"] > 0 and in_a_block != (revealed >= set(block)):
                    return
    pytest.fail(f"no such moment: {asked}")


async def leave_before_the_first_token(client: httpx.AsyncClient, stream: bool) -> None:
    """While a long prompt is still read: with log-probabilities it takes a round for each token."""
    body = {"prompt": "one two three " * 80, "echo": True, "logprobs": 1, "max_tokens": 8, "stream": stream}
    call = asyncio.create_task(client.post(TEXT, json=body))
    await asyncio.to_thread(wait_until, lambda: not nothing_held(), TIMEOUT_S)
    assert not call.done()
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call


async def freed(client: httpx.AsyncClient) -> None:
    await asyncio.to_thread(wait_until, nothing_held, FREED_WITHIN_S)
    assert (await client.get("/health")).json() == {"status": "ok", "running": 0, "waiting": 0}


@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_before_the_first_token(client: httpx.AsyncClient, stream: bool) -> None:
    await leave_before_the_first_token(client, stream)
    await freed(client)


@pytest.mark.parametrize("in_a_block", [True, False], ids=["in a block", "between blocks"])
async def test_leaving(client: httpx.AsyncClient, in_a_block: bool) -> None:
    """All methods at once, and one that stays: its answer is whole."""
    stays = asyncio.create_task(streamed(client, LONG | {"max_tokens": 100, "min_tokens": 100}))
    await asyncio.gather(*(leave(client, way | {"gamma": 2}, in_a_block) for way in ONE_OF_EACH))
    assert (await stays).completion_tokens == 100
    await freed(client)
