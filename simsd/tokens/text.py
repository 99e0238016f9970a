"""Streamed detokenisation: tokens become text as they come, in whole characters and without stop strings."""

import codecs
from collections import deque

from simsd.tokens.tokenizer import Tokenizer


class TextStream:
    """The detokeniser of one answer.

    All `push` calls together return a prefix of the answer's text, and the shortest prefix of its tokens that covers
    this text. The bytes of an incomplete character are held back, and so is the longest end of the text that may be the
    beginning of a stop string. After the final push, or once a stop string matched, the text equals a single decode of
    all tokens, cut before the stop string. If several stop strings match, the one that ends first decides, and of
    those the one that begins first. So the result does not depend on how the tokens were cut into pushes.

    Each token is turned into bytes once. Nothing is decoded again.
    """

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...] = (), min_tokens: int = 0) -> None:
        """The `stop` strings are searched for in the text after the first `min_tokens` tokens."""
        self.stopped = False
        """Whether a stop string matched. Nothing more is returned then."""
        self._tokenizer = tokenizer
        self._stop = stop
        self._unstoppable = min_tokens if stop else 0
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._pending: deque[tuple[int, int]] = deque()
        """Tokens that were not returned yet, each with the length in characters of the text up to its end."""
        self._decoded_chars = 0
        self._returned_chars = 0
        self._covered_chars = 0

    def push(self, ids: list[int], final: bool = False) -> tuple[list[int], str]:
        """Take the next tokens of the answer, and return the tokens and the text that are now safe to show.

        With `final` no more tokens will follow, and nothing is held back any longer.
        """
        if self.stopped:
            return [], ""
        if self._unstoppable > 0:
            early, ids = ids[: self._unstoppable], ids[self._unstoppable :]
            self._unstoppable -= len(early)
            stop, self._stop = self._stop, ()
            first_ids, first_text = self._push(early, final and not ids)
            self._stop = stop
            rest_ids, rest_text = self._push(ids, final) if ids else ([], "")
            return first_ids + rest_ids, first_text + rest_text
        return self._push(ids, final)

    def _push(self, ids: list[int], final: bool) -> tuple[list[int], str]:
        text = self._held + self._decode(ids, final)
        cut = self._first_stop(text)
        if cut is not None:
            self.stopped = True
            text, self._held = text[:cut], ""
        else:
            keep = 0 if final else self._possible_stop(text)
            text, self._held = text[: len(text) - keep], text[len(text) - keep :]
        self._returned_chars += len(text)
        return self._release(everything=final and not self.stopped), text

    def _decode(self, ids: list[int], final: bool) -> str:
        parts = []
        for token_id in ids:
            part = self._utf8.decode(self._tokenizer.token_bytes(token_id))
            self._decoded_chars += len(part)
            self._pending.append((token_id, self._decoded_chars))
            parts.append(part)
        if final:
            parts.append(self._utf8.decode(b"", final=True))
        return "".join(parts)

    def _first_stop(self, text: str) -> int | None:
        """Return where the stop string that ends first begins in `text`, or None if there is none."""
        found = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        return min(found)[1] if found else None

    def _possible_stop(self, text: str) -> int:
        """Return the length of the longest end of `text` with which a stop string begins."""
        longest = max(map(len, self._stop), default=1) - 1
        ends = range(min(longest, len(text)), 0, -1)
        return next((n for n in ends if any(stop.startswith(text[-n:]) for stop in self._stop)), 0)

    def _release(self, everything: bool) -> list[int]:
        released = []
        while self._pending and (everything or self._covered_chars < self._returned_chars):
            token_id, self._covered_chars = self._pending.popleft()
            released.append(token_id)
        return released
