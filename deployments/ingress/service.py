"""Turns validated bodies into requests for the coordinators, and returns their outputs, without HTTP or Ray."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from deployments.args import ServeArgs
from deployments.coordinator import ModelCard
from deployments.ingress.errors import CoordinatorLostError, DeadlineError, KeyLimitError, ModelNotFoundError
from deployments.ingress.schemas import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    Message,
    Sampling,
    SimSDOptions,
    TokenizeRequest,
)
from simsd.errors import RequestError
from simsd.messages.request import DecodeParams, Output, Request
from simsd.tokens.tokenizer import Tokenizer

T = TypeVar("T")

SEEDS = 2**64
LOSSES = 2
"""How many coordinators may be lost before an answer is given up."""


class Backend(Protocol):
    """What answers requests: the coordinators, or a stand-in in tests."""

    def generate(self, request: Request) -> AsyncGenerator[Output, None]:
        """Yield outputs; raises what `Loop.generate` raises, and `CoordinatorLostError`. Closing ends the request."""

    async def load(self) -> tuple[int, int]:
        """Return the numbers of (running, waiting) requests."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The client of a call: the index of its key, if the server has keys, and its timeout (None: no limit)."""

    key: int | None = None
    timeout_s: float | None = None


ANYONE = Caller()


class Service:
    """Turns bodies into requests: it checks the model's name, renders, tokenises, and fills in defaults.

    Its methods raise `RequestError` or `ModelNotFoundError` where a body cannot be served.
    """

    def __init__(self, args: ServeArgs, card: ModelCard, tokenizer: Tokenizer, backend: Backend) -> None:
        self.args, self.card, self.tokenizer, self.backend = args, card, tokenizer, backend
        self._under_way: Counter[int] = Counter()

    def chat(self, body: ChatRequest) -> list[Request]:
        """Return a request for each choice. The first one's id is the id of the answer."""
        self.check_model(body.model)
        prompt_ids = self._encode_messages(body.messages, body.chat_template_kwargs)
        return self._choices("chatcmpl", [prompt_ids], body)

    def completion(self, body: CompletionRequest) -> list[Request]:
        """Return a request for each choice, as `chat`: all choices of the first prompt, then those of the next."""
        self.check_model(body.model)
        prompts = [
            self.tokenizer.encode(prompt) if isinstance(prompt, str) else self.tokenizer.check_ids(prompt)
            for prompt in body.prompts
        ]
        return self._choices("cmpl", prompts, body)

    def tokenize(self, body: TokenizeRequest) -> list[int]:
        self.check_model(body.model)
        if body.prompt is not None:
            return self.tokenizer.encode(body.prompt, body.add_special_tokens is not False)
        return self._encode_messages(body.messages or [], body.chat_template_kwargs, body.add_generation_prompt)

    def detokenize(self, body: DetokenizeRequest) -> str:
        """Return the text of the ids, with special tokens."""
        self.check_model(body.model)
        return self.tokenizer.decode(self.tokenizer.check_ids(body.tokens, "tokens"), skip_special_tokens=False)

    def check_model(self, name: str | None) -> None:
        if name not in (None, self.card.name):
            raise ModelNotFoundError(f"model {name!r} is not served here; this is {self.card.name!r}")

    async def outputs(
        self, requests: list[Request], caller: Caller = ANYONE, whole: bool = False
    ) -> AsyncGenerator[tuple[int, Output], None]:
        """Yield (index of the request, output) as outputs come, or one complete output for each request if `whole`.

        The first error ends it: the backend's, `KeyLimitError`, or `DeadlineError` when the time is over. An error, or
        closing it, cancels all requests that still run.
        """
        deadline = _Deadline(caller.timeout_s, self.args.request_timeout_s)
        queue: asyncio.Queue[tuple[int, Output] | BaseException | None] = asyncio.Queue()

        async def pump(index: int, request: Request) -> None:
            try:
                async with aclosing(self._answer(request, whole)) as outputs:
                    async for output in outputs:
                        queue.put_nowait((index, output))
                queue.put_nowait(None)
            except BaseException as error:
                queue.put_nowait(error)
                raise

        with self._counted(caller.key):
            pumps = [asyncio.create_task(pump(*numbered)) for numbered in enumerate(requests)]
            running = len(pumps)
            try:
                while running:
                    item = await deadline.bound(queue.get())
                    if isinstance(item, BaseException):
                        raise item
                    if item is None:
                        running -= 1
                    else:
                        yield item
            finally:
                for task in pumps:
                    task.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)

    async def _answer(self, request: Request, whole: bool) -> AsyncGenerator[Output, None]:
        """Yield the request's outputs as they come, or one complete output.

        If a coordinator is lost before its first output, another one is asked; its answer is the same.
        """
        asked = replace(request, stream_interval=0 if whole else self.args.stream_interval)
        for left in reversed(range(1 + LOSSES)):
            begun = False
            try:
                async with aclosing(self.backend.generate(asked)) as outputs:
                    async for output in outputs:
                        begun = True
                        yield output
                return
            except CoordinatorLostError:
                if begun or not left:
                    raise

    @contextmanager
    def _counted(self, key: int | None) -> Iterator[None]:
        """Count one request of the key while the context is open; raises `KeyLimitError` if the key is at its limit."""
        limit = self.args.max_requests_per_key
        if key is None or not limit:
            yield
            return
        if self._under_way[key] >= limit:
            raise KeyLimitError(f"this key has {limit} requests under way; the server allows it no more at a time")
        self._under_way[key] += 1
        try:
            yield
        finally:
            self._under_way[key] -= 1

    def _encode_messages(
        self, messages: list[Message], variables: dict[str, Any] | None, add_generation_prompt: bool = True
    ) -> list[int]:
        if variables and "add_generation_prompt" in variables:
            message = "chat_template_kwargs: 'add_generation_prompt' is not a template variable"
            raise RequestError(message, "chat_template_kwargs")
        plain = [message.to_template() for message in messages]
        return self.tokenizer.encode_messages(plain, add_generation_prompt=add_generation_prompt, **(variables or {}))

    def _choices(self, kind: str, prompts: list[list[int]], body: Sampling) -> list[Request]:
        """Return n requests for each prompt. Choice i is decoded with seed + i, so the first is that of n = 1."""
        answer_id = f"{kind}-{secrets.token_hex(16)}"
        requests: list[Request] = []
        for prompt_ids in prompts:
            params = self._params(len(prompt_ids), body)
            for i in range(body.n):
                request_id = f"{answer_id}-{len(requests)}" if requests else answer_id
                requests.append(Request(request_id, prompt_ids, replace(params, seed=_seed(params, i)), body.report))
        return requests

    def _params(self, prompt_tokens: int, body: Sampling) -> DecodeParams:
        asked = body.requested()
        token_limit = body.token_limit
        if token_limit is None:
            # At least 1, so that a prompt that is too long is refused for its length.
            token_limit = max(1, min(self.args.max_tokens, self.card.context_tokens - prompt_tokens))
        try:
            params = self.args.decode_params(max_tokens=token_limit, **asked)
            params.resolve(self.card.block_size)
        except RequestError as error:
            raise _as_spelled(error) from error
        if params.temperature > 0 and "seed" not in asked:
            params = replace(params, seed=secrets.randbits(63))
        return params


class _Deadline:
    """The end of the shortest of some limits, counted from now. Limits are in seconds; 0 and None mean no limit."""

    def __init__(self, *limits_s: float | None) -> None:
        self._limit_s = min((limit_s for limit_s in limits_s if limit_s), default=None)
        self._at = asyncio.get_running_loop().time() + self._limit_s if self._limit_s else None

    async def bound(self, awaited: Awaitable[T]) -> T:
        """Await something; raises `DeadlineError` at the deadline."""
        try:
            async with asyncio.timeout_at(self._at):
                return await awaited
        except TimeoutError as error:
            raise DeadlineError(f"the answer was not there within {self._limit_s:g} s") from error


def _seed(params: DecodeParams, choice: int) -> int:
    """Return seed + choice; after the highest seed comes the lowest."""
    return (params.seed + choice + SEEDS // 2) % SEEDS - SEEDS // 2


def _as_spelled(error: RequestError) -> RequestError:
    """Return the error with its field named as in the body, where decoding options are in the `simsd` object."""
    if error.param in SimSDOptions.model_fields:
        return type(error)(f"simsd.{error}", f"simsd.{error.param}")
    return error
