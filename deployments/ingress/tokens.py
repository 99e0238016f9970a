"""Writes single tokens and their log-probabilities as the API shows them."""

import codecs

from deployments.ingress.replies import ChatLogprob, ChatLogprobs, Drafted, Reveal, Round, TextLogprobs, TopLogprob
from simsd.messages.request import Output, RoundEvent, TokenLogprob
from simsd.tokens.tokenizer import Tokenizer

LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot write; it is OpenAI's value."""


class Tokens:
    """The texts of tokens, and their log-probabilities and rounds in the API's form."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def text(self, token_id: int) -> str:
        """Return a token's text: a special token's name, and U+FFFD for bytes that are not whole characters."""
        return self._spelled(token_id).decode(errors="replace")

    def chat_logprobs(self, output: Output) -> ChatLogprobs:
        """Return the log-probabilities of an output's tokens in the form of chat completions."""
        content = [
            ChatLogprob(
                **dict(self._top(token_id, known.logprob)),
                top_logprobs=[self._top(other, logprob) for other, logprob in known.top],
            )
            for token_id, known in zip(output.token_ids, output.logprobs, strict=True)
        ]
        return ChatLogprobs(content=content)

    def round(self, event: RoundEvent, block_size: int) -> Round:
        return Round(
            round=event.round,
            start=event.start,
            block_size=block_size,
            drafted=[Drafted(index=i, token_id=token, text=self.text(token)) for i, token in event.drafted],
            reveals=[
                Reveal(index=i, token_id=token, text=self.text(token), kind=kind) for i, token, kind in event.reveals
            ],
        )

    def unique(self, token_id: int) -> str:
        """Return a token's text, or its bytes in hexadecimal if they are not text, so that keys stay distinct."""
        spelled = self._spelled(token_id)
        try:
            return spelled.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)

    def spelled(self, token_id: int, special: bool) -> bytes:
        """Return the bytes that the token adds to a text. `special`: whether that text has special tokens."""
        return self._spelled(token_id) if special else self._tokenizer.token_bytes(token_id)

    def _spelled(self, token_id: int) -> bytes:
        known = self._tokenizer.token_bytes(token_id)
        return known or (self._tokenizer.token_name(token_id) or f"token_id:{token_id}").encode()

    def _top(self, token_id: int, logprob: float) -> TopLogprob:
        known = self._tokenizer.token_bytes(token_id)
        return TopLogprob(
            token=self.text(token_id), logprob=max(logprob, LOWEST_LOGPROB), bytes=list(known) if known else None
        )


class TextLogprobWriter:
    """Writes the log-probabilities of one choice of a plain completion part by part, with offsets in its text."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._offset = 0
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def prompt(self, text: str, token_ids: list[int], known: list[TokenLogprob]) -> TextLogprobs:
        """Return those of an echoed prompt. The answer's offsets continue where the prompt's text ends."""
        written = self._write(token_ids, known, special=True)
        self._offset = len(text)
        self._utf8.reset()
        return written

    def answer(self, output: Output) -> TextLogprobs:
        return self._write(output.token_ids, output.logprobs, special=False)

    def _write(self, token_ids: list[int], known: list[TokenLogprob], special: bool) -> TextLogprobs:
        offsets = []
        for token_id in token_ids:
            offsets.append(self._offset)
            self._offset += len(self._utf8.decode(self._tokens.spelled(token_id, special)))
        pairs = list(zip(token_ids, known, strict=True))
        return TextLogprobs(
            tokens=[self._tokens.unique(token_id) for token_id in token_ids],
            token_logprobs=[max(one.logprob, LOWEST_LOGPROB) for one in known],
            top_logprobs=[self._best(token_id, one) for token_id, one in pairs],
            text_offset=offsets,
        )

    def _best(self, token_id: int, known: TokenLogprob) -> dict[str, float]:
        """Return the alternatives, and the token itself if it is not one of them."""
        best = {self._tokens.unique(other): max(logprob, LOWEST_LOGPROB) for other, logprob in known.top}
        return best | {self._tokens.unique(token_id): max(known.logprob, LOWEST_LOGPROB)}
