"""From a validated body to a request for the coordinator, and its outputs back. Knows neither HTTP nor Ray."""

import secrets
from collections.abc import AsyncGenerator
from typing import Protocol

from deployments.args import ServeArgs
from deployments.coordinator import ModelCard
from deployments.ingress.errors import ModelNotFoundError
from deployments.ingress.schemas import ChatRequest, CompletionRequest, Sampling, SimSDOptions
from simsd.errors import RequestError
from simsd.tokenizer import Tokenizer
from simsd.types import Output, Request


class Backend(Protocol):
    """Who answers: the coordinators, or a stand-in in tests."""

    def generate(self, request: Request) -> AsyncGenerator[Output, None]:
        """Raises what `simsd.loop.Loop.generate` raises; closing it frees what the request holds."""

    async def load(self) -> tuple[int, int]:
        """(running, waiting) requests."""


class Service:
    """Turns bodies into requests: checks the model's name, renders and tokenises, fills defaults in."""

    def __init__(self, args: ServeArgs, card: ModelCard, tokenizer: Tokenizer, backend: Backend) -> None:
        self.args, self.card, self.backend = args, card, backend
        self._tokenizer = tokenizer

    def chat(self, body: ChatRequest) -> Request:
        """`RequestError` or `ModelNotFoundError` where the body cannot be served."""
        self._check_model(body)
        prompt_ids = self._tokenizer.encode_messages([message.to_template() for message in body.messages])
        return self._request("chatcmpl", prompt_ids, body, body.token_limit)

    def completion(self, body: CompletionRequest) -> Request:
        """As `chat`, for a plain prompt: text or token ids."""
        self._check_model(body)
        prompt = body.prompt
        prompt_ids = self._tokenizer.encode(prompt) if isinstance(prompt, str) else self._tokenizer.check_ids(prompt)
        return self._request("cmpl", prompt_ids, body, body.token_limit)

    def _check_model(self, body: Sampling) -> None:
        if body.model not in (None, self.card.name):
            raise ModelNotFoundError(f"model {body.model!r} is not served here; this is {self.card.name!r}")

    def _request(self, kind: str, prompt_ids: list[int], body: Sampling, token_limit: int | None) -> Request:
        asked = body.requested()
        if token_limit is None:
            # At least 1, so that a prompt that is too long is refused as that.
            token_limit = max(1, min(self.args.max_tokens, self.card.context_tokens - len(prompt_ids)))
        try:
            params = self.args.decode_params(max_tokens=token_limit, **asked)
            params.resolve(self.card.block_size)
        except RequestError as error:
            raise _as_spelled(error) from error
        if params.temperature > 0 and "seed" not in asked:
            params = self.args.decode_params(max_tokens=token_limit, **asked, seed=secrets.randbits(63))
        return Request(f"{kind}-{secrets.token_hex(16)}", prompt_ids, params)


def _as_spelled(error: RequestError) -> RequestError:
    """The same error, its field named as it stands in the body: decoding settings are in the `simsd` object."""
    if error.param in SimSDOptions.model_fields:
        return type(error)(f"simsd.{error}", f"simsd.{error.param}")
    return error
