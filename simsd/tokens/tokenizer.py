"""The tokenizer and its chat template. This module imports no torch, because the ingress uses it."""

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError

from simsd.errors import CheckpointError, RequestError

ROLES = ("system", "user", "assistant")
TRIAL = {"role": "user", "content": "Hi"}
"""The message with which a chat template is tried when it is loaded."""


class Tokenizer:
    """A byte-level BPE tokenizer with its chat template, around transformers' own.

    In a byte-level tokenizer each id stands for a fixed string of bytes (`token_bytes`). So text can be streamed token
    by token and still equals the text of a single decode. `mask_token_id` is refused in prompts.
    """

    def __init__(self, backend: Any, mask_token_id: int | None) -> None:
        """backend: a fast tokenizer of transformers. `CheckpointError` if it is not byte-level."""
        self._hf = backend
        self._rust = backend.backend_tokenizer
        self._bytes: dict[int, bytes] = {}
        self.mask_token_id = mask_token_id
        decoder = self._content["decoder"] or {}
        if decoder.get("type") != "ByteLevel":
            raise CheckpointError(f"the tokenizer decodes by {decoder.get('type')}; only byte-level ones are supported")
        self._special = {t["id"] for t in self._content["added_tokens"] if t["special"]}

    @classmethod
    def load(cls, directory: Path, mask_token_id: int | None = None) -> "Tokenizer":
        """Load a tokenizer from a checkpoint directory: tokenizer.json, or vocab.json and merges.txt in Qwen's format.

        mask_token_id: None for the tokenizer's own mask token. `CheckpointError` names the file that is missing, that
        cannot be read, or whose chat template is broken.
        """
        # AutoTokenizer of transformers would import torch, and might ask to run code that comes with the checkpoint.
        if (path := directory / "tokenizer.json").is_file():
            from transformers import PreTrainedTokenizerFast as Backend
        elif (path := directory / "vocab.json").is_file() and (directory / "merges.txt").is_file():
            from transformers.models.qwen2 import Qwen2Tokenizer as Backend
        else:
            raise CheckpointError(f"{directory}: no tokenizer.json, nor vocab.json and merges.txt")
        try:
            backend = Backend.from_pretrained(directory, local_files_only=True)
        except Exception as error:  # The library raises a bare Exception for malformed files.
            raise CheckpointError(f"{path}: the tokenizer cannot be read: {_first_line(error)}") from error
        try:
            tokenizer = cls(backend, backend.mask_token_id if mask_token_id is None else mask_token_id)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error
        tokenizer._try_template(directory)
        return tokenizer

    def _try_template(self, directory: Path) -> None:
        """Raise a `CheckpointError` unless the template renders a simple chat or refuses it by `raise_exception`."""
        path = directory / "chat_template.jinja"
        if not path.is_file():
            path = directory / "tokenizer_config.json"
        if self._hf.chat_template is None:
            return
        try:
            self._render([TRIAL], {})
        except TemplateSyntaxError as error:
            raise CheckpointError(f"{path}: the chat template is broken in line {error.lineno}: {error}") from error
        except TemplateError:
            pass  # The template may need other messages than `TRIAL`.
        except Exception as error:
            raise CheckpointError(f"{path}: the chat template fails: {_described(error)}") from error

    @cached_property
    def _content(self) -> dict[str, Any]:
        return json.loads(self._rust.to_str())

    @cached_property
    def vocab_size(self) -> int:
        """The highest id plus one. A model's own vocabulary may be padded beyond it."""
        return max(self._rust.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def content_hash(self) -> str:
        """The SHA-256 of vocabulary, merges and added tokens. The two models of a pair must have equal hashes."""
        model, added = self._content["model"], self._content["added_tokens"]
        canonical = {
            "vocab": sorted(model["vocab"].items()),
            "merges": model.get("merges"),
            "added": sorted((t["id"], t["content"], t["special"]) for t in added),
        }
        return hashlib.sha256(json.dumps(canonical, ensure_ascii=True).encode()).hexdigest()

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of a raw prompt. `RequestError` if it is empty or contains the mask token."""
        if not text:
            raise RequestError("prompt must not be empty", "prompt")
        return self._encode(text, "prompt", add_special_tokens=add_special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        **template_kwargs: Any,
    ) -> str:
        """Return the chat template's text for `messages`, ready for the assistant's answer by default.

        tools: what the model may call, in OpenAI's form. template_kwargs: variables of the template, such as
        `enable_thinking`. `RequestError` if roles or contents are not usable, if the template refuses them by
        `raise_exception`, or if it fails on the request's variables. `CheckpointError` if it fails by itself.
        """
        _check_messages(messages)
        reserved = sorted(template_kwargs.keys() & (_template_arguments(self._hf.__class__) | {"messages"}))
        if reserved:
            message = f"chat_template_kwargs: {reserved[0]!r} is not a template variable"
            raise RequestError(message, "chat_template_kwargs")
        if self._hf.chat_template is None:
            raise RequestError("this model has no chat template; send a prompt instead", "messages")
        try:
            given = {"add_generation_prompt": add_generation_prompt, "tools": [dict(tool) for tool in tools] or None}
            return self._render(messages, given | template_kwargs)
        except Exception as error:  # A filter, a test or a method may raise anything.
            raise self._fault(error, messages, template_kwargs) from error

    def _fault(
        self, error: Exception, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]
    ) -> RequestError | CheckpointError:
        """Return the error to raise if the template fails.

        The fault is the request's if the template refused its messages, or fails otherwise without its variables.
        """
        if type(error) is TemplateError:  # The template called raise_exception.
            return RequestError(f"the chat template refuses these messages: {error}", "messages")
        if variables and _described(error) != self._failure(messages):
            message = f"chat_template_kwargs: the chat template fails on them: {_described(error)}"
            return RequestError(message, "chat_template_kwargs")
        return CheckpointError(f"the model's chat template fails on these messages: {_described(error)}")

    def _failure(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        """Return how the template fails on these messages without the request's variables; None if it does not."""
        try:
            self._render(messages, {})
        except Exception as error:
            return _described(error)
        return None

    def _render(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
        text: str = self._hf.apply_chat_template(
            [dict(m) for m in messages], **{"tokenize": False, "add_generation_prompt": True, **options}
        )
        return text

    def encode_messages(self, messages: Sequence[Mapping[str, Any]], /, **options: Any) -> list[int]:
        """Return the ids of a chat. Options and errors are those of `render`; the mask token is a `RequestError`."""
        return self._encode(self.render(messages, **options), "messages", add_special_tokens=False)

    def check_ids(self, ids: Sequence[int], param: str = "prompt") -> list[int]:
        """Check a prompt that was sent as ids, and return it.

        `RequestError` if it is empty, contains the mask token, or has an id outside the vocabulary.
        """
        if not ids:
            raise RequestError(f"{param} must not be empty", param)
        if self.mask_token_id is not None and self.mask_token_id in ids:
            raise RequestError(f"{param} contains the mask token (id {self.mask_token_id}), which is not text", param)
        out = next((i for i in ids if not 0 <= i < self.vocab_size), None)
        if out is not None:
            raise RequestError(f"{param} contains token id {out}; ids are 0 to {self.vocab_size - 1}", param)
        return list(ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of `ids` with spaces unchanged. Bytes that are not UTF-8 become U+FFFD."""
        return self._rust.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def token_id(self, name: str) -> int | None:
        """Return the id of a token as the vocabulary writes it, or None if there is no such token."""
        return self._rust.token_to_id(name)

    def token_name(self, token_id: int) -> str | None:
        """Return the token of an id as the vocabulary writes it, or None if there is no such id."""
        return self._rust.id_to_token(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that one id adds to the text. Special tokens and unknown ids add none."""
        found = self._bytes.get(token_id)
        if found is None:
            token = None if token_id in self._special else self._rust.id_to_token(token_id)
            found = self._bytes[token_id] = b"" if token is None else _unmap(token)
        return found

    def _encode(self, text: str, param: str, *, add_special_tokens: bool) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(f"{param} is not valid Unicode: {error.reason}", param) from error
        return self.check_ids(self._rust.encode(text, add_special_tokens=add_special_tokens).ids, param)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"


def _check_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    if not messages:
        raise RequestError("messages must not be empty", "messages")
    for index, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise RequestError(f"messages[{index}].role must be one of {', '.join(ROLES)}; got {role!r}", "messages")
        if not isinstance(content, str):
            raise RequestError(f"messages[{index}].content must be a string", "messages")


@cache
def _template_arguments(backend: Any) -> frozenset[str]:
    """Return the arguments of transformers' own function, which a client must not set by template variables."""
    return frozenset(inspect.signature(backend.apply_chat_template).parameters)


@cache
def _byte_of_char() -> dict[str, int]:
    """Return the byte of each character in byte-level BPE's writing.

    It writes each byte as one printable character: the byte itself, or the next free character from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


def _unmap(token: str) -> bytes:
    """Return the bytes of a token in byte-level writing. Added tokens that are not in it stand for themselves."""
    table = _byte_of_char()
    if all(char in table for char in token):
        return bytes(table[char] for char in token)
    return token.encode()
