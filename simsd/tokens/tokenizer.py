"""Text to token ids and back, chat templates included. Importing this module imports no torch: the ingress uses it."""

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
"""The message that every chat template must be able to render."""


class Tokenizer:
    """A byte-level BPE tokenizer with its chat template, around transformers' own.

    Byte-level is a promise that the rest relies on: each id stands for a fixed string of bytes (`token_bytes`), so text
    can be streamed token by token and still equal the text of one decode. `mask_token_id` is refused in prompts.
    """

    def __init__(self, backend: Any, mask_token_id: int | None) -> None:
        """`backend` is a transformers fast tokenizer; `CheckpointError` if it is not byte-level."""
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
        """From a checkpoint directory: tokenizer.json, or vocab.json with merges.txt as Qwen's tokenizer saves them.

        `mask_token_id` None: the tokenizer's own mask token. `CheckpointError` names the file that is missing, cannot
        be read, or holds a chat template that is broken.
        """
        # transformers' AutoTokenizer would import torch, and might ask to run code that came with the checkpoint.
        if (path := directory / "tokenizer.json").is_file():
            from transformers import PreTrainedTokenizerFast as Backend
        elif (path := directory / "vocab.json").is_file() and (directory / "merges.txt").is_file():
            from transformers.models.qwen2 import Qwen2Tokenizer as Backend
        else:
            raise CheckpointError(f"{directory}: no tokenizer.json, nor vocab.json and merges.txt")
        try:
            backend = Backend.from_pretrained(directory, local_files_only=True)
        except Exception as error:  # the library raises bare Exception on malformed files
            raise CheckpointError(f"{path}: the tokenizer cannot be read: {_first_line(error)}") from error
        try:
            tokenizer = cls(backend, backend.mask_token_id if mask_token_id is None else mask_token_id)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error
        tokenizer._try_template(directory)
        return tokenizer

    def _try_template(self, directory: Path) -> None:
        """`CheckpointError` unless the template renders the simplest chat, or refuses it in its own words."""
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
            pass  # it may want more than one message; what it says of a request's is the request's error
        except Exception as error:
            raise CheckpointError(f"{path}: the chat template fails: {_described(error)}") from error

    @cached_property
    def _content(self) -> dict[str, Any]:
        return json.loads(self._rust.to_str())

    @cached_property
    def vocab_size(self) -> int:
        """One above the highest id; a model's own vocabulary may be padded beyond it."""
        return max(self._rust.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def content_hash(self) -> str:
        """sha256 of what ids mean: vocabulary, merges, added tokens. Equal for tokenizers that a pair may share."""
        model, added = self._content["model"], self._content["added_tokens"]
        canonical = {
            "vocab": sorted(model["vocab"].items()),
            "merges": model.get("merges"),
            "added": sorted((t["id"], t["content"], t["special"]) for t in added),
        }
        return hashlib.sha256(json.dumps(canonical, ensure_ascii=True).encode()).hexdigest()

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of a raw prompt; `RequestError` if it is empty or contains the mask token."""
        if not text:
            raise RequestError("prompt must not be empty", "prompt")
        return self._encode(text, "prompt", add_special_tokens=add_special_tokens)

    def render(
        self, messages: Sequence[Mapping[str, Any]], /, *, add_generation_prompt: bool = True, **template_kwargs: Any
    ) -> str:
        """The chat template's text for `messages`, ready for the assistant's answer unless told otherwise.

        `template_kwargs` are variables of the template, as `enable_thinking`. `RequestError` if roles or contents are
        not usable, the template refuses them by its own `raise_exception`, or fails on the request's variables.
        `CheckpointError` where it fails by itself.
        """
        _check_messages(messages)
        reserved = sorted(template_kwargs.keys() & (_template_arguments(self._hf.__class__) | {"messages"}))
        if reserved:
            message = f"chat_template_kwargs: {reserved[0]!r} is not a template variable"
            raise RequestError(message, "chat_template_kwargs")
        if self._hf.chat_template is None:
            raise RequestError("this model has no chat template; send a prompt instead", "messages")
        try:
            return self._render(messages, {"add_generation_prompt": add_generation_prompt} | template_kwargs)
        except Exception as error:  # a filter, a test or a method may raise anything
            raise self._fault(error, messages, template_kwargs) from error

    def _fault(
        self, error: Exception, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]
    ) -> RequestError | CheckpointError:
        """Whose fault it is that the template fails: the request's if its own variables make a difference to it."""
        if type(error) is TemplateError:  # by the template's own raise_exception
            return RequestError(f"the chat template refuses these messages: {error}", "messages")
        if variables and _described(error) != self._failure(messages):
            message = f"chat_template_kwargs: the chat template fails on them: {_described(error)}"
            return RequestError(message, "chat_template_kwargs")
        return CheckpointError(f"the model's chat template fails on these messages: {_described(error)}")

    def _failure(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        """How the template fails on these messages without any variables of the request."""
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
        """Ids of a chat; options and errors as of `render`, and an error if it contains the mask token."""
        return self._encode(self.render(messages, **options), "messages", add_special_tokens=False)

    def check_ids(self, ids: Sequence[int], param: str = "prompt") -> list[int]:
        """A prompt sent as ids; `RequestError` if it is empty, out of the vocabulary or contains the mask token."""
        if not ids:
            raise RequestError(f"{param} must not be empty", param)
        if self.mask_token_id is not None and self.mask_token_id in ids:
            raise RequestError(f"{param} contains the mask token (id {self.mask_token_id}), which is not text", param)
        out = next((i for i in ids if not 0 <= i < self.vocab_size), None)
        if out is not None:
            raise RequestError(f"{param} contains token id {out}; ids are 0 to {self.vocab_size - 1}", param)
        return list(ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of `ids`, spaces as they are; bytes that are no UTF-8 become U+FFFD."""
        return self._rust.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def token_id(self, name: str) -> int | None:
        """The id of a token as the vocabulary writes it; None if it has none."""
        return self._rust.token_to_id(name)

    def token_name(self, token_id: int) -> str | None:
        """An id as the vocabulary writes it, special tokens too; None for ids without a token."""
        return self._rust.id_to_token(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one id adds to the text; none for special tokens and ids without a token."""
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
    """Arguments of transformers' own function, which a client must not reach through template variables."""
    return frozenset(inspect.signature(backend.apply_chat_template).parameters)


@cache
def _byte_of_char() -> dict[str, int]:
    """Byte-level BPE writes each byte as one printable character: itself, or the next free one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


def _unmap(token: str) -> bytes:
    """Bytes of a token in byte-level writing; added tokens that are not in it stand for themselves."""
    table = _byte_of_char()
    if all(char in table for char in token):
        return bytes(table[char] for char in token)
    return token.encode()
