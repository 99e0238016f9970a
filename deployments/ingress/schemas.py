"""Bodies of the HTTP API, in OpenAI's form. Unknown fields are refused by name; null means absent."""

import difflib
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from deployments.options import with_options
from simsd.errors import RequestError
from simsd.messages.options import options_of
from simsd.messages.presets import PRESET_HELP, Preset
from simsd.messages.request import MAX_BIAS, MAX_LOGPROBS, MAX_STOPS, DecodeParams, Report

OPTIONS = [option for option in options_of(DecodeParams).values() if option.place == "simsd"]
"""Options in the `simsd` object of a body."""
SAMPLING = [option for option in options_of(DecodeParams).values() if option.place == "body"]
"""Options beside the `simsd` object."""
MAX_N = 16
MAX_CHOICES = 128
"""Limit of the answers to one body: prompts times n."""
IGNORE_UNKNOWN = "ignore_unknown"
"""Key of pydantic's validation context: whether unknown fields are ignored."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "metadata": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "presence_penalty": (0,),
    "reasoning_effort": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": (),
    "web_search_options": (),
}
"""Fields of OpenAI and vLLM that are accepted only with values that ask for nothing, which some clients always send."""


class Body(BaseModel):
    """The base of all bodies: types are strict, and unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
    prefix: ClassVar[str] = ""
    """Where this object sits in the body, for error messages."""
    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _known_fields_only(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        lenient = bool(info.context and info.context.get(IGNORE_UNKNOWN))
        return {name: value for name, value in data.items() if cls._has(name, value, lenient) and value is not None}

    @classmethod
    def _has(cls, name: str, value: Any, lenient: bool) -> bool:
        """Return whether this body has the field; raises `RequestError` if it asks for something unsupported."""
        if name in cls.model_fields:
            return True
        where = f"{cls.prefix}{name}"
        if name in cls.neutral:
            if value is not None and not any(_same(value, allowed) for allowed in cls.neutral[name]):
                only = " or ".join(repr(allowed) for allowed in cls.neutral[name])
                hint = f"leave it out, or send {only}" if only else "leave it out"
                raise RequestError(f"{where} is not supported here; {hint}", where)
        elif not lenient:
            near = difflib.get_close_matches(str(name), cls.model_fields, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(cls.model_fields)}"
            raise RequestError(f"unknown field {where}; {hint}", where)
        return False

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of what is accepted, with null for fields that may be absent, and with neutral fields."""
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        properties = schema.setdefault("properties", {})
        for name in properties.keys() - set(schema.get("required", [])):
            properties[name] = _nullable(properties[name])
        properties |= {name: {"enum": [*values, None]} for name, values in cls.neutral.items()}
        return reference


def must_be(allowed: str) -> WrapValidator:
    """Return a validator with one message for a whole union; pydantic would report its first branch only."""

    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            raise PydanticCustomError("not_allowed", "must be {allowed}", {"allowed": allowed}) from error

    return WrapValidator(check)


TokenId = Annotated[int, Field(ge=0)]
StopString = Annotated[str, Field(min_length=1)]
Stop = Annotated[
    StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS)],
    must_be(f"a non-empty string, or up to {MAX_STOPS} of them"),
]
IdString = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,8})$")]
Bias = Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]
Biases = Annotated[dict[IdString, Bias], Field(json_schema_extra={"additionalProperties": False})]
PromptText = Annotated[str, Field(min_length=1)]
PromptIds = Annotated[list[TokenId], Field(min_length=1)]
Prompts = Annotated[
    PromptText
    | Annotated[list[PromptText], Field(min_length=1, max_length=MAX_CHOICES)]
    | PromptIds
    | Annotated[list[PromptIds], Field(min_length=1, max_length=MAX_CHOICES)],
    must_be(f"text, token ids, or a list of up to {MAX_CHOICES} texts or lists of token ids; none of them empty"),
]


@with_options(OPTIONS, may_be_absent=True)
class SimSDOptions(Body):
    """The `simsd` object: how to decode. Absent fields keep the server's defaults; ranges depend on the block size."""

    prefix: ClassVar[str] = "simsd."

    preset: Preset | None = Field(None, description=PRESET_HELP)
    events: bool = Field(False, description="stream every round as it happens")


class StreamOptions(Body):
    """What a stream tells beside the text. continuous_usage_stats is vLLM's field, which load generators use."""

    prefix: ClassVar[str] = "stream_options."

    include_usage: bool = False
    continuous_usage_stats: bool = False

    @model_validator(mode="after")
    def _continuous_is_included(self) -> "StreamOptions":
        if self.continuous_usage_stats and not self.include_usage:
            field = f"{self.prefix}continuous_usage_stats"
            raise RequestError(f"{field} needs include_usage: true", field)
        return self


@with_options(SAMPLING, may_be_absent=True)
class Sampling(Body):
    """The fields that chat and plain completions share. top_k, min_p, min_tokens and ignore_eos are not OpenAI's."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = NEUTRAL

    model: str | None = None
    n: int = Field(1, ge=1, le=MAX_N)
    max_tokens: int | None = Field(None, ge=1)
    stop: Stop | None = None
    logit_bias: Biases | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    ignore_eos: bool = False
    simsd: SimSDOptions | None = None

    @model_validator(mode="after")
    def _only_in_streams(self) -> "Sampling":
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options needs stream: true", "stream_options")
        if self.events and not self.stream:
            raise RequestError("simsd.events needs stream: true", "simsd.events")
        return self

    @property
    def events(self) -> bool:
        return self.simsd is not None and self.simsd.events

    @property
    def token_limit(self) -> int | None:
        """The most tokens to decode; None for the server's default."""
        return self.max_tokens

    @property
    def report(self) -> Report:
        """What the answer tells beside the text."""
        return Report(events=self.events)

    def requested(self) -> dict[str, Any]:
        """Return the decoding options that this body sets, by the names of `DecodeParams`, without max_tokens.

        A `preset` is among them.
        """
        plain = {option.name for option in SAMPLING} - {"max_tokens", "stop", "logit_bias"}
        settings = self.model_dump(include=plain, exclude_none=True)
        if self.simsd is not None:
            settings |= self.simsd.model_dump(exclude_none=True, exclude={"events"})
        if self.stop is not None:
            settings["stop"] = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if self.logit_bias is not None:
            settings["logit_bias"] = tuple((int(token), bias) for token, bias in self.logit_bias.items())
        return settings


class TextPart(Body):
    prefix: ClassVar[str] = "messages[].content[]."
    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {"file": (), "image_url": (), "input_audio": (), "video_url": ()}

    type: Literal["text"]
    text: str


class Message(Body):
    prefix: ClassVar[str] = "messages[]."
    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        "annotations": ([],),
        "audio": (),
        "function_call": (),
        "name": (),
        "refusal": (),
        "tool_calls": ([],),
    }

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str | list[TextPart], must_be('text, or a list of {"type": "text", "text": …}')] = ""

    def to_template(self) -> dict[str, str]:
        """Return the message as chat templates take it: "developer" becomes "system", and parts are joined."""
        role = "system" if self.role == "developer" else self.role
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": role, "content": text}


Messages = Annotated[list[Message], Field(min_length=1)]


class ChatRequest(Sampling):
    """Body of POST /v1/chat/completions."""

    messages: Messages
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _top_needs_logprobs(self) -> "ChatRequest":
        if self.top_logprobs is not None and not self.logprobs:
            raise RequestError("top_logprobs needs logprobs: true", "top_logprobs")
        return self

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def report(self) -> Report:
        return Report(logprobs=(self.top_logprobs or 0) if self.logprobs else None, events=self.events)


class CompletionRequest(Sampling):
    """Body of POST /v1/completions, for one or more prompts of text or token ids.

    With echo, max_tokens may be 0: the answer is then the prompt.
    """

    prompt: Prompts
    max_tokens: int | None = Field(None, ge=0)
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    echo: bool = False

    @model_validator(mode="after")
    def _checked(self) -> "CompletionRequest":
        if self.max_tokens == 0 and not self.echo:
            raise RequestError("max_tokens must be at least 1; 0 needs echo: true", "max_tokens")
        choices = len(self.prompts) * self.n
        if choices > MAX_CHOICES:
            what = f"{len(self.prompts)} prompts with n {self.n}"
            raise RequestError(f"{what} are {choices} answers; a body may ask for {MAX_CHOICES}", "prompt")
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """Each prompt of the body, as text or token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        ids = [one for one in self.prompt if isinstance(one, int)]
        return [ids] if ids else [one for one in self.prompt if not isinstance(one, int)]

    @property
    def token_limit(self) -> int | None:
        """The most tokens to decode: at least 1, since only a decoded token makes the prompt pass through the model."""
        return 1 if self.max_tokens == 0 else self.max_tokens

    @property
    def report(self) -> Report:
        return Report(self.logprobs, prompt=self.echo and self.logprobs is not None, events=self.events)


FOR_TEMPLATE = ("add_generation_prompt", "chat_template_kwargs")
"""Fields of a TokenizeRequest that need messages."""


def _given_without(name: str, others: tuple[str, ...]) -> dict[str, Any]:
    """Return the schema of objects that have `name` and none of the others."""
    absent = {other: {"type": "null"} for other in others}
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}, **absent}}


class TokenizeRequest(Body):
    """Body of POST /tokenize: either a prompt, or messages for the chat template."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                _given_without("prompt", ("messages", *FOR_TEMPLATE)),
                _given_without("messages", ("prompt",)),
            ]
        }
    )

    model: str | None = None
    prompt: PromptText | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _one_of_two(self) -> "TokenizeRequest":
        if (self.prompt is None) == (self.messages is None):
            raise RequestError("send either a prompt or messages", "prompt")
        if self.messages is not None and self.add_special_tokens:
            raise RequestError("add_special_tokens is for a prompt; a template adds its own", "add_special_tokens")
        for name in FOR_TEMPLATE:
            if self.messages is None and name in self.model_fields_set:
                raise RequestError(f"{name} needs messages", name)
        return self


class DetokenizeRequest(Body):
    """Body of POST /detokenize."""

    model: str | None = None
    tokens: PromptIds


def _same(value: Any, allowed: Any) -> bool:
    """Return whether two values are equal in JSON, where false is not 0."""
    return isinstance(value, bool) == isinstance(allowed, bool) and bool(value == allowed)


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    branches = schema.get("anyOf")
    if branches is None:
        about = {key: schema[key] for key in ("title", "description", "default") if key in schema}
        return about | {"anyOf": [{k: v for k, v in schema.items() if k not in about}, {"type": "null"}]}
    return schema if {"type": "null"} in branches else schema | {"anyOf": [*branches, {"type": "null"}]}
