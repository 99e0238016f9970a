"""Turns the outputs of a body's requests into OpenAI's bodies: whole, or as server-sent events."""

import dataclasses
import json
import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, ClassVar

from deployments.ingress.context import request_id
from deployments.ingress.errors import to_api_error
from deployments.ingress.replies import (
    Answer,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatLogprobs,
    ChatMessage,
    ChoiceRound,
    Chunk,
    Completion,
    CompletionChunk,
    CompletionTokensDetails,
    Delta,
    PromptTokensDetails,
    TextChoice,
    TextChunkChoice,
    TextLogprobs,
    Usage,
)
from deployments.ingress.schemas import CompletionRequest, Sampling, StreamOptions
from deployments.ingress.service import Service
from deployments.ingress.tokens import TextLogprobWriter, Tokens
from simsd.errors import InternalError
from simsd.messages.request import FinishReason, Output, Request, RoundEvent, Stats

logger = logging.getLogger(__name__)

Outputs = AsyncGenerator[tuple[int, Output], None]
"""Outputs of all choices as they come, each as (index of the choice, output)."""


class Form(ABC):
    """The form of the answer to one body."""

    chunk_type: ClassVar[type[Chunk]]

    def __init__(self, service: Service, requests: list[Request], body: Sampling) -> None:
        self.requests = requests
        self.tokens = Tokens(service.tokenizer)
        self._card, self._n = service.card, body.n
        self._created = int(time.time())
        self._tells_logprobs = body.report.logprobs is not None

    def head(self) -> dict[str, Any]:
        return {"id": self.requests[0].request_id, "created": self._created, "model": self._card.name}

    @abstractmethod
    def whole(self, outputs: list[Output]) -> Answer:
        """Return the body of an answer that is not streamed. `outputs` holds one complete output for each choice."""

    def first(self) -> list[Chunk]:
        """Return the chunks that a stream begins with."""
        return []

    def part(self, index: int, output: Output) -> list[Chunk]:
        """Return a choice's rounds, each in a chunk of its own, and then the chunks of what they made visible."""
        return [self._round(index, event) for event in output.events] + self._visible(index, output)

    @abstractmethod
    def _visible(self, index: int, output: Output) -> list[Chunk]: ...

    def last(self, outputs: list[Output]) -> Chunk:
        """Return a stream's last chunk, with usage and counters, from the last output of each choice."""
        return self._chunk([], **self._totals(outputs))

    def usage_so_far(self, completion_tokens: int) -> Usage:
        """Return the usage of all choices together while a stream runs, without details."""
        prompt_tokens = sum(len(request.prompt_ids) for request in self.requests[:: self._n])
        return Usage(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            total_tokens=prompt_tokens + completion_tokens,
        )

    def _totals(self, outputs: list[Output]) -> dict[str, Any]:
        stats = [_ended(output)[1] for output in outputs]
        return {"usage": usage_of(stats, self._n), "simsd": sum_of(stats)}

    def _round(self, index: int, event: RoundEvent) -> Chunk:
        told = ChoiceRound(choice=index, event=self.tokens.round(event, self._card.block_size))
        return self._chunk([], simsd=told)

    def _chunk(self, choices: list[Any], **members: Any) -> Chunk:
        kind = self.chunk_type.model_fields["object"].default
        return self.chunk_type(**self.head(), object=kind, choices=choices, **members)


class ChatForm(Form):
    chunk_type = ChatChunk

    def whole(self, outputs: list[Output]) -> Answer:
        choices = [
            ChatChoice(
                index=index,
                message=ChatMessage(content=output.text),
                logprobs=self._logprobs(output),
                finish_reason=_ended(output)[0],
            )
            for index, output in enumerate(outputs)
        ]
        return ChatCompletion(**self.head(), choices=choices, **self._totals(outputs))

    def first(self) -> list[Chunk]:
        return [self._part(index, Delta(role="assistant", content="")) for index in range(len(self.requests))]

    def _visible(self, index: int, output: Output) -> list[Chunk]:
        """Return text and finish reason in separate chunks, as OpenAI sends them."""
        chunks = []
        if output.text or output.logprobs:
            chunks.append(self._part(index, Delta(content=output.text), logprobs=self._logprobs(output)))
        if output.finish_reason is not None:
            chunks.append(self._part(index, Delta(), reason=output.finish_reason))
        return chunks

    def _part(
        self, index: int, delta: Delta, logprobs: ChatLogprobs | None = None, reason: FinishReason | None = None
    ) -> Chunk:
        return self._chunk([ChatChunkChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=reason)])

    def _logprobs(self, output: Output) -> ChatLogprobs | None:
        return self.tokens.chat_logprobs(output) if self._tells_logprobs else None


class TextForm(Form):
    """The form of plain completions. An echoed prompt comes with its choice's first part, or with its logprobs."""

    chunk_type = CompletionChunk

    def __init__(self, service: Service, requests: list[Request], body: CompletionRequest) -> None:
        super().__init__(service, requests, body)
        self._writers = [TextLogprobWriter(self.tokens) for _ in requests]
        self._to_echo: dict[int, str] = {}
        if body.echo:
            texts = [
                prompt if isinstance(prompt, str) else service.tokenizer.decode(prompt, skip_special_tokens=False)
                for prompt in body.prompts
            ]
            self._to_echo = {index: texts[index // body.n] for index in range(len(requests))}

    def whole(self, outputs: list[Output]) -> Answer:
        choices = []
        for index, output in enumerate(outputs):
            text, logprobs = self._content(index, output)
            choices.append(TextChoice(index=index, text=text, logprobs=logprobs, finish_reason=_ended(output)[0]))
        return Completion(**self.head(), choices=choices, **self._totals(outputs))

    def _visible(self, index: int, output: Output) -> list[Chunk]:
        text, logprobs = self._content(index, output)
        if not text and not (logprobs and logprobs.tokens) and output.finish_reason is None:
            return []
        choice = TextChunkChoice(index=index, text=text, logprobs=logprobs, finish_reason=output.finish_reason)
        return [self._chunk([choice])]

    def _content(self, index: int, output: Output) -> tuple[str, TextLogprobs | None]:
        """Return the next part of a choice's text and logprobs. The first part holds the prompt if it is echoed."""
        asked = self.requests[index]
        prompt, of_prompt = "", None
        if index in self._to_echo and (output.prompt_logprobs or not asked.report.prompt):
            prompt = self._to_echo.pop(index)
            if asked.report.prompt:
                of_prompt = self._writers[index].prompt(prompt, asked.prompt_ids, output.prompt_logprobs)
        logprobs = self._writers[index].answer(output) if self._tells_logprobs else None
        if of_prompt is not None and logprobs is not None:
            logprobs = of_prompt.followed_by(logprobs)
        return prompt + output.text, logprobs


def usage_of(stats: list[Stats], n: int = 1) -> Usage:
    """Return the usage of all choices of a body, n for each prompt. A prompt counts once."""
    prompt_tokens = sum(one.prompt_tokens for one in stats[::n])
    total = sum_of(stats)
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=total.completion_tokens,
        total_tokens=prompt_tokens + total.completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=sum(one.cached_tokens for one in stats[::n])),
        completion_tokens_details=CompletionTokensDetails(
            accepted_prediction_tokens=total.accepted, rejected_prediction_tokens=total.drafted - total.accepted
        ),
    )


def sum_of(stats: list[Stats]) -> Stats:
    """Return the sum of every counter over all choices."""
    histogram: Counter[int] = Counter()
    for one in stats:
        histogram.update(one.accept_histogram)
    names = [field.name for field in dataclasses.fields(Stats) if field.name != "accept_histogram"]
    return Stats(**{name: sum(getattr(one, name) for one in stats) for name in names}, accept_histogram=dict(histogram))


async def prompt_only(outputs: Outputs) -> Outputs:
    """Yield the outputs without the token that was decoded for max_tokens 0."""
    async with aclosing(outputs):
        async for index, output in outputs:
            output.token_ids, output.text, output.logprobs = [], "", []
            if output.finish_reason is not None and output.stats is not None:
                output.finish_reason, output.stats.completion_tokens = "length", 0
            yield index, output


async def whole_answer(form: Form, outputs: Outputs) -> dict[str, Any]:
    """Wait for the end and return the body of an answer. `outputs` yields one complete output for each choice."""
    async with aclosing(outputs):
        choices = {index: output async for index, output in outputs}
    return form.whole([choices[index] for index in sorted(choices)]).model_dump()


async def first_output(outputs: Outputs) -> tuple[int, Output]:
    """Return the first output, before a stream's headers are sent: an error until then still sets the status."""
    try:
        return await anext(outputs)
    except BaseException:
        await outputs.aclose()
        raise


async def events(form: Form, first: tuple[int, Output], outputs: Outputs, options: StreamOptions) -> AsyncIterator[str]:
    """Yield server-sent events: the role, parts of all choices as they come, usage if it is asked for, and [DONE].

    An error is the last event of a stream that fails.
    """
    ends: dict[int, Output] = {}
    completion_tokens = 0

    def event(chunk: Chunk) -> str:
        if options.continuous_usage_stats:
            chunk.usage = form.usage_so_far(completion_tokens)
        return _event(chunk, options.include_usage)

    async with aclosing(outputs):
        try:
            for chunk in form.first():
                yield event(chunk)
            async for index, output in _all(first, outputs):
                completion_tokens += len(output.token_ids)
                for chunk in form.part(index, output):
                    yield event(chunk)
                if output.finish_reason is not None:
                    ends[index] = output
            if options.include_usage:
                yield _event(form.last([ends[index] for index in sorted(ends)]), options.include_usage)
            yield "data: [DONE]\n\n"
        except Exception as error:
            logger.exception("%s: stream of %s failed", request_id.get(), form.requests[0].request_id)
            yield f"data: {json.dumps(to_api_error(error).body())}\n\n"


async def _all(first: tuple[int, Output], rest: Outputs) -> Outputs:
    yield first
    async for item in rest:
        yield item


def _event(chunk: Chunk, include_usage: bool) -> str:
    """Return one event. If usage is asked for, it is null until it has a value."""
    body = chunk.model_dump(exclude_unset=True)
    if include_usage:
        body.setdefault("usage", None)
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"


def _ended(output: Output) -> tuple[FinishReason, Stats]:
    """Return finish reason and counters of a choice's last output; raises `InternalError` where they are missing."""
    if output.finish_reason is None or output.stats is None:
        raise InternalError("an answer ended without a finish reason")
    return output.finish_reason, output.stats
