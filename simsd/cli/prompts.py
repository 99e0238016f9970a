"""Prompts from the command line or from a JSON lines file, each with its own decode parameters."""

import difflib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from simsd.errors import RequestError
from simsd.messages.options import options_of
from simsd.messages.presets import on_top_of
from simsd.messages.request import DecodeParams
from simsd.tokens.tokenizer import Tokenizer

TEXT_KEYS = ("prompt", "messages")
FIELDS = (*options_of(DecodeParams), "preset")
_PARAMS = TypeAdapter(DecodeParams)


@dataclass(frozen=True)
class Prompt:
    """One prompt. Error messages call it `where`; exactly one of `text` and `messages` is set."""

    where: str
    params: DecodeParams
    text: str | None = None
    messages: list[dict[str, Any]] | None = None

    def rendered(self, tokenizer: Tokenizer, raw: bool) -> tuple[str, list[int]]:
        """Return (the prompt to report, its token ids).

        A text is one user turn of the chat template, or stands as it is if `raw`. Raises `RequestError`, which says
        where the prompt stands.
        """
        try:
            if self.messages is not None:
                return tokenizer.render(self.messages), tokenizer.encode_messages(self.messages)
            assert self.text is not None
            if raw:
                return self.text, tokenizer.encode(self.text)
            if not self.text:
                raise RequestError("prompt must not be empty", "prompt")
            return self.text, tokenizer.encode_messages([{"role": "user", "content": self.text}])
        except RequestError as error:
            raise RequestError(f"{self.where}: {error}", error.param) from error


def read_prompts(path: str, defaults: dict[str, Any]) -> list[Prompt]:
    """Read the prompts of a JSON lines file ("-": standard input). A line's own fields go on top of `defaults`.

    Raises `RequestError`, which names the line and the key at fault.
    """
    text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise RequestError(f"{path}: no prompts in it")
    return [_parse(f"{path}, line {number}", line, defaults) for number, line in lines]


def _parse(where: str, line: str, defaults: dict[str, Any]) -> Prompt:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise RequestError(f"{where}: not JSON: {error}") from error
    if not isinstance(record, dict) or len(record.keys() & set(TEXT_KEYS)) != 1:
        raise RequestError(f'{where}: must be an object with either "prompt" or "messages"')
    for key in record:
        if key not in TEXT_KEYS + FIELDS:
            near = difflib.get_close_matches(key, TEXT_KEYS + FIELDS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(TEXT_KEYS + FIELDS)}"
            raise RequestError(f"{where}: unknown key {key!r}; {hint}", key)
    prompt, messages = record.pop("prompt", None), record.pop("messages", None)
    if messages is None and not isinstance(prompt, str):
        raise RequestError(f"{where}: prompt must be a string", "prompt")
    if prompt is None and not (isinstance(messages, list) and all(isinstance(m, dict) for m in messages)):
        raise RequestError(f"{where}: messages must be a list of objects", "messages")
    if isinstance(record.get("stop"), str):
        record["stop"] = [record["stop"]]
    if isinstance(record.get("logit_bias"), dict):  # the form of OpenAI's API
        record["logit_bias"] = [
            [int(token), bias] if token.isdigit() else token for token, bias in record["logit_bias"].items()
        ]
    try:
        # It is validated as JSON, where strict mode accepts a list for a tuple, but not "1" for a number.
        params = _PARAMS.validate_json(json.dumps(on_top_of(defaults, record)), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        raise RequestError(f"{where}: {key}: {first['msg']}, got {first['input']!r}", key) from error
    except RequestError as error:
        raise RequestError(f"{where}: {error}", error.param) from error
    return Prompt(where, params, prompt, messages)
