"""Outputs of a request, as OpenAI's bodies: whole, or as server-sent events."""

import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from deployments.ingress.errors import to_api_error
from deployments.ingress.schemas import (
    Answer,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatMessage,
    Completion,
    Delta,
    DeltaChoice,
    TextChoice,
    Usage,
)
from simsd.types import FinishReason, Output, Request, Stats

logger = logging.getLogger(__name__)

Outputs = AsyncGenerator[Output, None]


def usage_of(stats: Stats) -> Usage:
    return Usage(
        prompt_tokens=stats.prompt_tokens,
        completion_tokens=stats.completion_tokens,
        total_tokens=stats.prompt_tokens + stats.completion_tokens,
        prompt_tokens_details={"cached_tokens": stats.cached_tokens},
    )


@dataclass(frozen=True)
class ChatForm:
    """How a chat answer looks."""

    model: str
    request: Request
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def head(self) -> dict[str, Any]:
        return {"id": self.request.request_id, "created": self.created, "model": self.model}

    def whole(self, text: str, reason: FinishReason, stats: Stats) -> Answer:
        choice = ChatChoice(message=ChatMessage(content=text), finish_reason=reason)
        return ChatCompletion(**self.head, choices=[choice], usage=usage_of(stats), simsd=stats.to_dict())

    def chunk(self, delta: Delta, reason: FinishReason | None = None) -> Answer:
        return ChatChunk(**self.head, choices=[DeltaChoice(delta=delta, finish_reason=reason)])

    def first(self) -> list[Answer]:
        return [self.chunk(Delta(role="assistant", content=""))]

    def part(self, output: Output) -> list[Answer]:
        """Text and finish reason come in chunks of their own, as OpenAI sends them."""
        chunks = [self.chunk(Delta(content=output.text))] if output.text else []
        return chunks + ([self.chunk(Delta(), output.finish_reason)] if output.finish_reason else [])

    def usage(self, stats: Stats) -> Answer:
        return ChatChunk(**self.head, choices=[], usage=usage_of(stats), simsd=stats.to_dict())


@dataclass(frozen=True)
class TextForm(ChatForm):
    """How a plain completion looks."""

    def whole(self, text: str, reason: FinishReason, stats: Stats) -> Answer:
        choice = TextChoice(text=text, finish_reason=reason)
        return Completion(**self.head, choices=[choice], usage=usage_of(stats), simsd=stats.to_dict())

    def first(self) -> list[Answer]:
        return []

    def part(self, output: Output) -> list[Answer]:
        if not output.text and output.finish_reason is None:
            return []
        return [Completion(**self.head, choices=[TextChoice(text=output.text, finish_reason=output.finish_reason)])]

    def usage(self, stats: Stats) -> Answer:
        return Completion(**self.head, choices=[], usage=usage_of(stats), simsd=stats.to_dict())


async def whole_answer(form: ChatForm, outputs: Outputs) -> dict[str, Any]:
    """Wait for the end; the body of an answer that is not streamed."""
    text: list[str] = []
    async with aclosing(outputs):
        async for output in outputs:
            text.append(output.text)
            if output.finish_reason is not None and output.stats is not None:
                return form.whole("".join(text), output.finish_reason, output.stats).model_dump()
    raise RuntimeError("the stream ended without a finish reason")


async def first_output(outputs: Outputs) -> Output:
    """What a stream waits for before its headers: until here a refusal can have a status of its own."""
    try:
        return await anext(outputs)
    except BaseException:
        await outputs.aclose()
        raise


async def events(form: ChatForm, first: Output, outputs: Outputs, include_usage: bool) -> AsyncIterator[str]:
    """Server-sent events: role, text as it comes, finish reason, usage if asked for, [DONE]; or an error at last."""
    async with aclosing(outputs):
        try:
            for chunk in form.first():
                yield _event(chunk, include_usage)
            output = first
            while True:
                for chunk in form.part(output):
                    yield _event(chunk, include_usage)
                if output.finish_reason is not None:
                    break
                output = await anext(outputs)
            if include_usage and output.stats is not None:
                yield _event(form.usage(output.stats), include_usage)
            yield "data: [DONE]\n\n"
        except Exception as error:
            logger.exception("stream %s failed", form.request.request_id)
            yield f"data: {json.dumps(to_api_error(error).body())}\n\n"


def _event(answer: Answer, include_usage: bool) -> str:
    """One event. Absent members are left out, but for those that clients look for: null until they have a value."""
    body = answer.model_dump(exclude_none=True)
    for choice in body["choices"]:
        choice.setdefault("finish_reason", None)
    if include_usage:
        body.setdefault("usage", None)
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"
