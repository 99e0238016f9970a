"""Turns protobuf messages into bodies of the HTTP API, and outputs into messages.

So one validation serves both front ends.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.unknown_fields import UnknownFieldSet
from pydantic import ValidationError

from deployments.ingress.errors import BodyTooLargeError, from_validation
from deployments.ingress.schemas import Body, ChatRequest, CompletionRequest, TokenizeRequest
from simsd.errors import RequestError
from simsd.messages.request import Output, RoundEvent, Stats, TokenLogprob
from simsd_client.v1 import simsd_pb2

INPUTS = ("prompt", "prompt_token_ids", "messages")

MessageT = TypeVar("MessageT", bound=Message)
BodyT = TypeVar("BodyT", bound=Body)


def read_message(kind: type[MessageT], raw: bytes, limit: int, ignore_unknown: bool = False) -> MessageT:
    """Parse a message.

    Raises `RequestError` if it is not valid or has unknown fields, `BodyTooLargeError` beyond `limit` bytes.
    """
    if len(raw) > limit:
        raise BodyTooLargeError(f"the message is larger than {limit} bytes")
    try:
        message = kind.FromString(raw)
    except DecodeError as error:
        raise RequestError(f"the message is not a valid {kind.DESCRIPTOR.full_name}") from error
    if not ignore_unknown:
        _refuse_unknown_fields(message)
    return message


def generate_body(
    request: simsd_pb2.GenerateRequest, stream: bool = False, events: bool = False
) -> ChatRequest | CompletionRequest:
    """Return the body that is equivalent to a request; raises `RequestError`, which names the field at fault."""
    given = _fields(request)
    source = _input(given)
    if source != "messages" and "chat_template_kwargs" in given:
        raise RequestError("chat_template_kwargs needs messages", "chat_template_kwargs")
    if source == "prompt_token_ids":
        given["prompt"] = given.pop(source)
    if source == "messages" and "logprobs" in given:
        given["top_logprobs"], given["logprobs"] = given["logprobs"], True
    if events:
        given["simsd"] = given.get("simsd", {}) | {"events": True}
    given["stream"] = stream
    return validated(ChatRequest, given) if source == "messages" else validated(CompletionRequest, given)


def tokenize_body(request: simsd_pb2.TokenizeRequest) -> TokenizeRequest:
    return validated(TokenizeRequest, _fields(request))


def validated(schema: type[BodyT], given: dict[str, Any]) -> BodyT:
    try:
        return schema.model_validate(given)
    except ValidationError as error:
        raise from_validation(error) from error


def as_in_message(error: RequestError, request: simsd_pb2.GenerateRequest) -> RequestError:
    """Return the error with its field named as in the message, where the body has another name for it."""
    names = {"top_logprobs": "logprobs"} | ({"prompt": "prompt_token_ids"} if request.prompt_token_ids else {})
    name = names.get(error.param or "")
    return error if name is None else type(error)(str(error).replace(str(error.param), name, 1), name)


def _input(given: dict[str, Any]) -> str:
    """Return which of the fields for a prompt is set; raises `RequestError` unless exactly one is."""
    found = [name for name in INPUTS if name in given]
    if len(found) != 1:
        got = " and ".join(found) or "none of them"
        raise RequestError(f"set exactly one of {', '.join(INPUTS)}; got {got}", found[1] if found else "prompt")
    return found[0]


class Answers:
    """Turns the outputs of one request into messages. `token_bytes` returns a token's bytes."""

    def __init__(self, request_id: str, model: str, block_size: int, token_bytes: Callable[[int], bytes]) -> None:
        self._id, self._model, self._block_size, self._token_bytes = request_id, model, block_size, token_bytes

    def whole(self, outputs: Sequence[Output]) -> simsd_pb2.GenerateResponse:
        """Return the answer that all outputs together make."""
        last = outputs[-1]
        merged = Output(
            token_ids=[token for output in outputs for token in output.token_ids],
            text="".join(output.text for output in outputs),
            finish_reason=last.finish_reason,
            stats=last.stats,
            logprobs=[entry for output in outputs for entry in output.logprobs],
        )
        return simsd_pb2.GenerateResponse(id=self._id, model=self._model, **self._visible(merged))

    def part(self, output: Output) -> simsd_pb2.GenerateStreamResponse:
        """Return one message of a stream."""
        events = [self._event(event) for event in output.events]
        return simsd_pb2.GenerateStreamResponse(id=self._id, events=events, **self._visible(output))

    def _visible(self, output: Output) -> dict[str, Any]:
        pairs = zip(output.token_ids, output.logprobs, strict=bool(output.logprobs))
        fields = {
            "text": output.text,
            "token_ids": output.token_ids,
            "logprobs": [self._logprob(token, entry) for token, entry in pairs],
        }
        if output.finish_reason is None or output.stats is None:
            return fields
        reason = _number(simsd_pb2.FinishReason.DESCRIPTOR, output.finish_reason)
        return fields | {"finish_reason": reason, **_counters(output.stats)}

    def _token(self, token: int) -> dict[str, Any]:
        return {"token_id": token, "token": self._token_bytes(token)}

    def _logprob(self, token: int, entry: TokenLogprob) -> simsd_pb2.TokenLogprob:
        top = [simsd_pb2.TopLogprob(**self._token(other), logprob=logprob) for other, logprob in entry.top]
        return simsd_pb2.TokenLogprob(**self._token(token), logprob=entry.logprob, top=top)

    def _event(self, event: RoundEvent) -> simsd_pb2.RoundEvent:
        drafted = [simsd_pb2.DraftedToken(index=index, **self._token(token)) for index, token in event.drafted]
        reveals = [
            simsd_pb2.Reveal(index=index, **self._token(token), kind=_number(simsd_pb2.RevealKind.DESCRIPTOR, kind))
            for index, token, kind in event.reveals
        ]
        return simsd_pb2.RoundEvent(
            round=event.round, start=event.start, block_size=self._block_size, drafted=drafted, reveals=reveals
        )


def _counters(stats: Stats) -> dict[str, Any]:
    """Return the messages `usage` and `stats`; each of their fields holds the counter of the same name."""
    counters = stats.to_dict()
    return {
        name: kind(**{field: counters[field] for field in kind.DESCRIPTOR.fields_by_name})
        for name, kind in (("usage", simsd_pb2.Usage), ("stats", simsd_pb2.Stats))
    }


def _refuse_unknown_fields(message: Message) -> None:
    unknown = UnknownFieldSet(message)
    if len(unknown):
        name, number = message.DESCRIPTOR.full_name, unknown[0].field_number
        raise RequestError(f"{name} has no field number {number}; is the client newer than this server?", f"#{number}")
    for field, value in message.ListFields():
        if field.message_type is None or _is_map(field):
            continue
        for child in value if field.is_repeated else [value]:
            _refuse_unknown_fields(child)


def _fields(message: Message) -> dict[str, Any]:
    """Return the fields that are set, as JSON would have them. An enum becomes its word, as "exact" of METHOD_EXACT."""
    return {field.name: _plain(field, value) for field, value in message.ListFields()}


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if _is_map(field):
        return {str(key): item for key, item in value.items()}
    if field.is_repeated:
        return [_fields(item) if field.message_type else item for item in value]
    if isinstance(value, Struct):
        return _struct(value)
    if field.message_type is not None:
        return _fields(value)
    return _word(field.enum_type, value) if field.enum_type is not None else value


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _struct(struct: Struct) -> dict[str, Any]:
    return {name: _value(value) for name, value in struct.fields.items()}


def _value(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case None | "null_value":
            return None
        case "struct_value":
            return _struct(value.struct_value)
        case "list_value":
            return [_value(item) for item in value.list_value.values]
        case kind:
            return getattr(value, kind)


def _prefix(enum: EnumDescriptor) -> str:
    return enum.values_by_number[0].name.removesuffix("UNSPECIFIED")


def _word(enum: EnumDescriptor, number: int) -> str | None:
    """Return an enum's word; None if it is not set. A number without a name becomes a string, refused later."""
    known = enum.values_by_number.get(number)
    if known is None:
        return str(number)
    return known.name.removeprefix(_prefix(enum)).lower() if number else None


def _number(enum: EnumDescriptor, word: str) -> Any:
    return enum.values_by_name[f"{_prefix(enum)}{word.upper()}"].number
