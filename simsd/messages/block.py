"""The state of a block: what the loop, the draft and the target each know of the block that is open."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simsd.messages.request import DecodeParams, FinishReason


@dataclass(frozen=True, slots=True)
class BlockState:
    """A block of B positions, some of them open.

    start: position of its first token, a multiple of B. tokens: [B] ids, `mask_token_id` where open. step: denoising
    steps that were taken in it. fresh: none of its tokens was decoded yet; a prompt's tail may fill some.
    """

    start: int
    tokens: tuple[int, ...]
    mask_token_id: int
    step: int = 0
    fresh: bool = True

    @classmethod
    def behind(cls, start: int, known: Sequence[int], block_size: int, mask_token_id: int) -> "BlockState":
        """The block at position `start` whose first tokens are `known`, fewer than B of them."""
        assert len(known) < block_size
        return cls(start, (*known, *[mask_token_id] * (block_size - len(known))), mask_token_id)

    @property
    def size(self) -> int:
        """B."""
        return len(self.tokens)

    @property
    def open_offsets(self) -> list[int]:
        """Offsets of the open positions, ascending."""
        mask = self.mask_token_id
        return [offset for offset, token in enumerate(self.tokens) if token == mask]

    @property
    def left(self) -> int:
        """How many positions are open."""
        return self.tokens.count(self.mask_token_id)

    @property
    def full(self) -> bool:
        return self.mask_token_id not in self.tokens

    def with_tokens(self, entries: Iterable[tuple[int, int]]) -> tuple[int, ...]:
        """The block's tokens with `entries`, (offset, token) of open positions, put in."""
        tokens = list(self.tokens)
        for offset, token in entries:
            assert tokens[offset] == self.mask_token_id, "a revealed position was revealed again"
            tokens[offset] = token
        return tuple(tokens)

    def reveal(self, entries: Iterable[tuple[int, int]], steps: int, decoded: bool = True) -> "BlockState":
        """The state after `steps` more denoising steps that revealed `entries`, pairs of (offset, token).

        decoded: False for tokens of the prompt, which leave a fresh block fresh.
        """
        tokens = self.with_tokens(entries)
        fresh = self.fresh and not (decoded and tokens != self.tokens)
        return dataclasses.replace(self, tokens=tokens, step=self.step + steps, fresh=fresh)

    def following(self) -> "BlockState":
        """The next block, all of it open."""
        return BlockState(self.start + self.size, (self.mask_token_id,) * self.size, self.mask_token_id)

    def visible_end(
        self, params: DecodeParams, prompt_tokens: int, eos_token_ids: Sequence[int]
    ) -> tuple[int, FinishReason | None]:
        """Position up to which the answer can be seen, and why it ends there, if it does.

        Tokens become visible in position order: those before the first open position, EOS and `max_tokens`, whichever
        comes first. The answer begins at position `prompt_tokens`. What ended in an earlier block is not looked at.
        """
        closed = self.start + (self.size if self.full else self.tokens.index(self.mask_token_id))
        limit = prompt_tokens + params.max_tokens
        if not params.ignore_eos:
            for position in range(max(self.start, prompt_tokens), min(closed, limit)):
                if self.tokens[position - self.start] in eos_token_ids:
                    return position, "stop"
        return (limit, "length") if closed >= limit else (closed, None)
