"""Clients that stay, leave or misbehave, and how each of their requests ended.

A `Case` is a request whose answer is known. It may be answered with its text, or with an error after which the API says
to try again. `ask` tells which it was; a wrong answer is an outcome too, not an exception.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import httpx

from simsd.eval.families import FAMILIES

CHAT = "/v1/chat/completions"
TIMEOUT_S = 180.0
"""Limit for one request, which only a request that hangs reaches."""
LEAVE_S = (0.02, 2.0)
"""Shortest and longest time after which a client hangs up, if it does."""
WAYS: list[dict[str, Any]] = [
    {"method": "vanilla"},
    {"method": "vanilla", "remasking": "dynamic"},
    {"method": "simsd"},
    {"method": "simsd", "layout": "branches", "gamma": 2},
    {"method": "simsd", "drafter": "self"},
    {"method": "exact"},
    {"method": "exact", "drafter": "self"},
    {"method": "s2d2"},
]
LENGTHS = (2, 16, 48, 128)
"""Lengths of answers in tokens, at most."""
BAD: list[tuple[bytes, str | None]] = [
    (b"{", None),
    (b"[]", None),
    (b'{"messages": []}', "messages"),
    (b'{"messages": [{"role": "user", "content": "x"}], "max_token": 3}', "max_token"),
    (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 100000000}', "max_tokens"),
    (b'{"messages": [{"role": "user", "content": "x"}], "simsd": {"gamma": 65}}', "simsd.gamma"),
    (b'{"messages": [{"role": "user", "content": "x"}], "model": "other"}', "model"),
]
"""Bodies that are refused, and the field that the error names."""

Outcome = Literal["answered", "refused", "left", "queue full", "unavailable", "cut", "wrong"]
"""How a request ended.

* answered: the text was right.
* refused: the input was bad, and the error named the field.
* left: the client hung up.
* queue full: status 429 with Retry-After.
* unavailable: status 503 with Retry-After, or the error event of a stream.
* cut: the connection ended, or Serve's proxy answered because its ingress was dead.
* wrong: anything else.
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A chat body and the texts of its choices."""

    body: dict[str, Any]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that ended. Times are of `time.monotonic`; `detail` says what was wrong."""

    outcome: Outcome
    began: float
    ended: float
    detail: str = ""
    stream: bool = False


class UnexpectedError(Exception):
    """An answer that is neither right nor a declared error."""


class RetryableError(Exception):
    """An error after which the API says to try again."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


def bodies(rng: random.Random) -> list[dict[str, Any]]:
    """Return bodies for all ways of decoding and all lengths of answers, with prompts of ten to some hundred tokens."""
    lists = [question.prompt for question in FAMILIES["lists"].questions("heldout", 4 * len(LENGTHS), seed=1)]
    made = []
    for i, way in enumerate(WAYS):
        for j, length in enumerate(LENGTHS):
            prompt = rng.choice(lists) * rng.choice([1, 1, 1, 4])
            body = {"messages": [{"role": "user", "content": prompt}], "simsd": way, "max_tokens": length}
            body |= {"temperature": (0.0, 1.0)[(i + j) % 2], "seed": rng.randrange(2**31), "n": rng.choice([1, 1, 2])}
            made.append(body)
    return made


async def with_answers(client: httpx.AsyncClient, asked: list[dict[str, Any]]) -> list[Case]:
    """Return cases with the answers of an undisturbed server, which is asked one request after the other."""
    return [Case(body, await _whole(client, body)) for body in asked]


async def ask(client: httpx.AsyncClient, case: Case, stream: bool) -> Ended:
    """Send one request and return how it ended."""
    began = time.monotonic()
    outcome: Outcome
    detail = ""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            texts = await (_streamed if stream else _whole)(client, case.body)
        outcome = "answered" if texts == case.texts else "wrong"
        detail = "" if texts == case.texts else f"{texts} is not {case.texts}"
    except RetryableError as error:
        outcome = error.outcome
    except httpx.TransportError as error:
        outcome, detail = "cut", type(error).__name__
    except UnexpectedError as error:
        outcome, detail = ("cut" if "Internal Server Error" in str(error) else "wrong"), str(error)
    except TimeoutError:
        outcome, detail = "wrong", f"no end within {TIMEOUT_S:g} s: {case.body}"
    return Ended(outcome, began, time.monotonic(), detail, stream)


async def leave(client: httpx.AsyncClient, case: Case, stream: bool, after_s: float) -> Ended:
    """Send one request, and hang up after `after_s` seconds unless it has ended."""
    try:
        async with asyncio.timeout(after_s):
            return await ask(client, case, stream)
    except TimeoutError:
        now = time.monotonic()
        return Ended("left", now - after_s, now, stream=stream)


async def misbehave(client: httpx.AsyncClient, content: bytes, param: str | None) -> Ended:
    """Send a body that must be refused with an error about `param`."""
    began = time.monotonic()
    outcome: Outcome = "refused"
    detail = ""
    try:
        response = await client.post(CHAT, content=content)
        _raise_for(response.status_code, response.headers, response.text)
        outcome, detail = "wrong", f"accepted: {content!r}"
    except RetryableError as error:
        outcome = error.outcome
    except httpx.TransportError as error:
        outcome, detail = "cut", type(error).__name__
    except UnexpectedError as error:
        if response.status_code not in (400, 404) or response.json()["error"]["param"] != param:
            outcome, detail = "wrong", str(error)
    return Ended(outcome, began, time.monotonic(), detail)


async def _whole(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[str, ...]:
    response = await client.post(CHAT, json=body)
    _raise_for(response.status_code, response.headers, response.text)
    return tuple(choice["message"]["content"] for choice in response.json()["choices"])


async def _streamed(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[str, ...]:
    texts = [""] * body["n"]
    async with client.stream("POST", CHAT, json=body | {"stream": True}) as response:
        if response.status_code != 200:
            _raise_for(response.status_code, response.headers, (await response.aread()).decode())
        async for data in _events(response):
            for choice in data["choices"]:
                texts[choice["index"]] += choice["delta"].get("content") or ""
    return tuple(texts)


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield the chunks up to [DONE]. A stream that ends without it raises the error of a cut connection."""
    async for line in response.aiter_lines():
        if line == "data: [DONE]":
            return
        if line:
            data = json.loads(line.removeprefix("data: "))
            if "error" in data:
                code = data["error"]["code"]
                raise RetryableError("unavailable") if code == "unavailable" else UnexpectedError(f"event {data}")
            yield data
    raise httpx.RemoteProtocolError("the stream ended without [DONE]")


def _raise_for(status: int, headers: httpx.Headers, text: str) -> None:
    """Raise for any status but 200."""
    if status in (429, 503) and "retry-after" in headers:
        raise RetryableError("queue full" if status == 429 else "unavailable")
    if status != 200:
        raise UnexpectedError(f"status {status}: {text[:300]}")


@dataclass
class Load:
    """Clients that each send one request after the other, until a given time."""

    client: httpx.AsyncClient
    cases: list[Case]
    seed: int

    async def run(self, clients: int, until: float) -> list[Ended]:
        """Run the clients until `until` (`time.monotonic`), and return all requests, with those under way then."""
        runs = [self._client(random.Random(f"{self.seed} {i}"), until) for i in range(clients)]
        return [ended for run in await asyncio.gather(*runs) for ended in run]

    async def _client(self, rng: random.Random, until: float) -> list[Ended]:
        done: list[Ended] = []
        while time.monotonic() < until:
            case, stream, kind = rng.choice(self.cases), rng.random() < 0.5, rng.random()
            if kind < 0.1:
                done.append(await misbehave(self.client, *rng.choice(BAD)))
            elif kind < 0.25:
                done.append(await leave(self.client, case, stream, rng.uniform(*LEAVE_S)))
            else:
                done.append(await ask(self.client, case, stream))
            if done[-1].outcome in ("queue full", "unavailable", "cut"):
                await asyncio.sleep(1)
        return done


def excused(ended: Ended, windows: list[tuple[float, float, str]], grace_s: float) -> Ended:
    """Return how the request ended, with the outcome "wrong" for an error that only a loss excuses, but none does.

    windows: (begin, end, component) of each loss until recovery. Only the loss of an ingress excuses a cut connection.
    """
    if ended.outcome not in ("unavailable", "cut"):
        return ended
    for begin, end, component in windows:
        overlaps = ended.began <= end + grace_s and ended.ended >= begin
        if overlaps and (ended.outcome == "unavailable" or component == "ingress"):
            return ended
    nearest = min((ended.ended - begin for begin, _, _ in windows), key=abs, default=None)
    when = "no loss at all" if nearest is None else f"{nearest:+.1f} s from the nearest loss"
    return replace(ended, outcome="wrong", detail=f"{ended.outcome} {ended.detail}, excused by none: {when}")
