"""Turns Python values into request messages."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from simsd_client.v1 import simsd_pb2

Text = str | Sequence[Mapping[str, str]]
"""A raw prompt, or a chat: {"role", "content"} for each turn."""
Prompt = Text | Sequence[int]
"""A text, or a raw prompt as token ids."""


class Options(TypedDict, total=False):
    """The options of a request. An option that is left out keeps the server's default. simsd.proto explains each."""

    model: str
    max_tokens: int
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    stop: str | Sequence[str]
    ignore_eos: bool
    logit_bias: Mapping[int, float]
    logprobs: int
    chat_template_kwargs: Mapping[str, Any]
    method: Literal["vanilla", "simsd", "exact", "s2d2"]
    gamma: int
    draft_steps: int
    layout: Literal["paired", "branches"]
    fallback: Literal["target", "redraft"]
    remasking: Literal["static", "dynamic", "sequential", "entropy"]
    steps: int
    threshold: float
    entropy_bound: float
    row_budget: int
    drafter: Literal["model", "self"]
    routing: Literal["span", "score", "hysteresis", "ucb"]
    routing_score: Literal["margin", "entropy"]
    routing_cost: float
    adaptive: bool
    lookahead: int
    preset: Literal["paper", "fast", "lossless", "baseline"]


def generate_request(prompt: Prompt, options: Options) -> simsd_pb2.GenerateRequest:
    """Return the message of a request.

    Raises `TypeError` for an unknown option or a value of a wrong type, `ValueError` for an unknown word of an enum.
    """
    request = simsd_pb2.GenerateRequest()
    _put_prompt(request, prompt)
    for name, value in options.items():
        _put(request.simsd if name in simsd_pb2.SimSDOptions.DESCRIPTOR.fields_by_name else request, name, value)
    return request


def tokenize_request(prompt: Text, model: str | None) -> simsd_pb2.TokenizeRequest:
    request = simsd_pb2.TokenizeRequest(model=model)
    _put_prompt(request, prompt)
    return request


def _put_prompt(request: Any, prompt: Prompt) -> None:
    """Set the field for the kind of prompt. An empty sequence becomes an empty text, which the server refuses."""
    if isinstance(prompt, str) or not prompt:
        request.prompt = prompt or ""
        return
    for item in prompt:
        if isinstance(item, int):
            request.prompt_token_ids.append(item)
            continue
        message = request.messages.add()
        for name, value in item.items():
            _put(message, name, value)


def _put(message: Any, name: str, value: Any) -> None:
    """Set a field. An enum is given by its word, as "exact" for METHOD_EXACT."""
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        known = ", ".join(message.DESCRIPTOR.fields_by_name)
        raise TypeError(f"unknown field {name!r} of {message.DESCRIPTOR.name}; known: {known}")
    if field.enum_type is not None:
        setattr(message, name, _number(field.enum_type, name, value))
    elif field.message_type is not None:  # a map or a Struct
        getattr(message, name).update(value)
    elif field.is_repeated:
        getattr(message, name).extend([value] if isinstance(value, str) else value)
    else:
        setattr(message, name, value)


def _number(enum: Any, name: str, word: str) -> int:
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    words = {value.name.removeprefix(prefix).lower(): value.number for value in enum.values if value.number}
    if word not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}; got {word!r}")
    return words[word]
