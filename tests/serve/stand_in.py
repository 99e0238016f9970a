"""A stand-in for the coordinators: it recites instead of decoding, but checks requests as the loop does."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import httpx
from fastapi import FastAPI

from deployments.args import ServeArgs
from deployments.coordinator import ModelCard
from deployments.gather import gather
from deployments.ingress.http import build_http
from deployments.ingress.service import Backend, Service
from simsd.config import LoopConfig
from simsd.loop.loop import Loop
from simsd.messages.request import Output, Report, Request, RoundEvent, Stats, TokenLogprob
from simsd.messages.worker import WorkerInfo
from simsd.tokens.text import TextStream
from simsd.tokens.tokenizer import Tokenizer

CONTEXT_TOKENS = 2048
BLOCK_SIZE = 4
MAX_BODY_BYTES = 32768
SPEECH = "The capital is Paris 🙂 or 東京. "
PIECE = 2


def build_app(tokenizer: Tokenizer, backend: Backend, **args: Any) -> FastAPI:
    """The ingress' HTTP app over a stand-in."""
    assert tokenizer.mask_token_id is not None
    card = ModelCard("tiny", BLOCK_SIZE, tokenizer.mask_token_id, CONTEXT_TOKENS)
    given = ServeArgs(**({"max_body_bytes": MAX_BODY_BYTES} | args))
    return build_http(Service(given, card, tokenizer, Gathering(backend)))


def client_of(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


class Gathering:
    """A backend that gathers what `backend` says, as a coordinator does."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.load = backend.load

    async def generate(self, request: Request) -> AsyncGenerator[Output, None]:
        async with aclosing(self._backend.generate(request)) as outputs:
            async for output in gather(outputs, request.stream_interval, lambda _: None):
                yield output


class Reciter:
    """Recites `SPEECH` for as long as it is asked to, two tokens an output.

    Every log-probability is minus the token's index in the answer or the prompt; alternatives are the ids after it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.mask_token_id is not None
        info = WorkerInfo(
            role="target",
            model="tiny",
            weights_hash="",
            architecture="none",
            vocab_size=tokenizer.vocab_size,
            tokenizer_hash="",
            mask_token_id=tokenizer.mask_token_id,
            block_size=BLOCK_SIZE,
            eos_token_ids=(),
            max_model_len=CONTEXT_TOKENS,
            page_size=16,
            pages=CONTEXT_TOKENS,
            max_rows=2048,
            device="cpu",
            dtype="float32",
        )
        client: Any = SimpleNamespace(info=info)
        self.tokenizer = tokenizer
        self.asked: list[Request] = []
        self.open = 0
        self._loop = Loop(client, client, tokenizer, LoopConfig())

    async def generate(self, request: Request) -> AsyncGenerator[Output, None]:
        self._loop.check(request)
        self.asked.append(request)
        self.open += 1
        try:
            for output in self._recital(request):
                await asyncio.sleep(0)
                yield output
        finally:
            self.open -= 1

    async def load(self) -> tuple[int, int]:
        return self.open, 0

    def _recital(self, request: Request) -> list[Output]:
        params, report = request.params, request.report
        speech = self.tokenizer.encode(SPEECH)
        wanted = max(len(speech), params.min_tokens)
        ids = (speech * (wanted // len(speech) + 1))[: min(wanted, params.max_tokens)]
        text = TextStream(self.tokenizer, params.stop, params.min_tokens)
        stats = Stats(prompt_tokens=len(request.prompt_ids), cached_tokens=1, accept_histogram={1: 1})
        outputs = []
        if report.prompt:
            outputs.append(Output([], "", prompt_logprobs=self._logprobs(request.prompt_ids, 0, report)))
        for start in range(0, len(ids), PIECE):
            piece = ids[start : start + PIECE]
            shown, new_text = text.push(piece, final=start + PIECE >= len(ids))
            output = Output(shown, new_text, logprobs=self._logprobs(shown, stats.completion_tokens, report))
            stats.completion_tokens += len(shown)
            stats.rounds += 1
            stats.drafted += PIECE
            stats.accepted += 1
            if report.events:
                output.events = [self._event(stats.rounds, start, piece)]
            outputs.append(output)
            if text.stopped:
                break
        outputs[-1].finish_reason = "stop" if text.stopped or wanted <= params.max_tokens else "length"
        outputs[-1].stats = stats
        return outputs

    def _logprobs(self, ids: list[int], first: int, report: Report) -> list[TokenLogprob]:
        if report.logprobs is None:
            return []
        others = range(report.logprobs)
        return [
            TokenLogprob(-float(first + i), [((token + k) % self.tokenizer.vocab_size, -float(k)) for k in others])
            for i, token in enumerate(ids)
        ]

    def _event(self, number: int, start: int, piece: list[int]) -> RoundEvent:
        drafted = [(start + i, token) for i, token in enumerate(piece)]
        return RoundEvent(number, start // BLOCK_SIZE * BLOCK_SIZE, drafted, [(*drafted[0], "accepted")])
