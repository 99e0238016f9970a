"""Bodies of the HTTP API, in OpenAI's form. Fields we do not have are refused by name; null means absent."""

import difflib
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from simsd.errors import RequestError
from simsd.types import Fallback, FinishReason, Layout, Method, Remasking

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "response_format": ({"type": "text"},),
    "store": (False,),
    "metadata": ({},),
}
"""OpenAI's fields that are accepted only with a value that asks for nothing, as clients send them by habit."""


class Body(BaseModel):
    """Base of what clients send: strict types, no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    prefix: ClassVar[str] = ""
    """Where this object sits in the body, for error messages."""
    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _known_fields_only(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        given = {name: value for name, value in data.items() if value is not None}
        for name, value in list(given.items()):
            if name in cls.model_fields:
                continue
            if name not in cls.neutral:
                near = difflib.get_close_matches(str(name), cls.model_fields, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(cls.model_fields)}"
                raise RequestError(f"unknown field {cls.prefix}{name}; {hint}", f"{cls.prefix}{name}")
            if value not in cls.neutral[name]:
                only = " or ".join(repr(allowed) for allowed in cls.neutral[name])
                raise RequestError(f"{name} is not supported here; leave it out, or send {only}", name)
            del given[name]
        return given


class SimSDOptions(Body):
    """The `simsd` object: how to decode. Absent fields keep the server's defaults; ranges depend on the block size."""

    prefix: ClassVar[str] = "simsd."

    method: Method | None = None
    gamma: int | None = None
    draft_steps: int | None = None
    layout: Layout | None = None
    fallback: Fallback | None = None
    remasking: Remasking | None = None
    steps: int | None = None
    threshold: float | None = None
    entropy_bound: float | None = None
    row_budget: int | None = None


class StreamOptions(Body):
    prefix: ClassVar[str] = "stream_options."

    include_usage: bool = False


class Sampling(Body):
    """What chat and plain completions share. top_k and ignore_eos are no fields of OpenAI's, but of other servers."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = NEUTRAL

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    ignore_eos: bool = False
    simsd: SimSDOptions | None = None

    @model_validator(mode="after")
    def _usage_needs_stream(self) -> "Sampling":
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options needs stream: true", "stream_options")
        return self

    def requested(self) -> dict[str, Any]:
        """The decoding settings that this body asks for, by `DecodeParams`' names; max_tokens left out."""
        settings = self.model_dump(include={"temperature", "top_p", "top_k", "seed", "ignore_eos"}, exclude_none=True)
        if self.simsd is not None:
            settings |= self.simsd.model_dump(exclude_none=True)
        if self.stop is not None:
            settings["stop"] = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        return settings


class TextPart(Body):
    prefix: ClassVar[str] = "messages[].content[]."

    type: Literal["text"]
    text: str


class Message(Body):
    prefix: ClassVar[str] = "messages[]."

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] = ""

    def to_template(self) -> dict[str, str]:
        """As chat templates take it: the newer role name mapped, parts joined."""
        role = "system" if self.role == "developer" else self.role
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": role, "content": text}


class ChatRequest(Sampling):
    """Body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = None

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class CompletionRequest(Sampling):
    """Body of POST /v1/completions: text, or token ids."""

    prompt: str | list[int]

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]


class ModelEntry(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "simsd"


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelEntry]


class ChatMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str


class ChatChoice(BaseModel):
    index: int = 0
    message: ChatMessage
    logprobs: None = None
    finish_reason: FinishReason


class TextChoice(BaseModel):
    index: int = 0
    text: str
    logprobs: None = None
    finish_reason: FinishReason | None


class Delta(BaseModel):
    role: Literal["assistant"] | None = None
    content: str | None = None


class DeltaChoice(BaseModel):
    index: int = 0
    delta: Delta
    logprobs: None = None
    finish_reason: FinishReason | None = None


class Answer(BaseModel):
    """What all answers carry, in OpenAI's order. `simsd` has the request's counters (`simsd.types.Stats`)."""

    id: str
    object: str
    created: int
    model: str
    choices: list[Any]
    usage: Usage | None = None
    simsd: dict[str, Any] | None = None


class ChatCompletion(Answer):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]


class ChatChunk(Answer):
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[DeltaChoice]


class Completion(Answer):
    """An answer, or a chunk of a streamed one: they have one form."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[TextChoice]
