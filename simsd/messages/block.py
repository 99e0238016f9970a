"""The state of an open block, which the loop, the draft and the target share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simsd.messages.request import DecodeParams, FinishReason


@dataclass(frozen=True, slots=True)
class BlockState:
    """A block of B positions, some of which are open, that is, hold the mask token.

    start: the position of its first token, a multiple of B.
    tokens: [B] token ids, with `mask_token_id` at the open positions.
    step: the number of denoising steps that were taken in the block.
    fresh: whether no token of the block has been decoded yet. Tokens of the prompt may fill its first positions.
    """

    start: int
    tokens: tuple[int, ...]
    mask_token_id: int
    step: int = 0
    fresh: bool = True

    @classmethod
    def behind(cls, start: int, known: Sequence[int], block_size: int, mask_token_id: int) -> "BlockState":
        """Make the block at position `start` whose first tokens are `known`; there must be fewer than B of them."""
        assert len(known) < block_size
        return cls(start, (*known, *[mask_token_id] * (block_size - len(known))), mask_token_id)

    @property
    def size(self) -> int:
        """The block size B."""
        return len(self.tokens)

    @property
    def open_offsets(self) -> list[int]:
        """The offsets of the open positions, in ascending order."""
        mask = self.mask_token_id
        return [offset for offset, token in enumerate(self.tokens) if token == mask]

    @property
    def left(self) -> int:
        """The number of open positions."""
        return self.tokens.count(self.mask_token_id)

    @property
    def full(self) -> bool:
        return self.mask_token_id not in self.tokens

    def with_tokens(self, entries: Iterable[tuple[int, int]]) -> tuple[int, ...]:
        """Return the block's tokens with `entries` filled in, which are (offset, token) of open positions."""
        tokens = list(self.tokens)
        for offset, token in entries:
            assert tokens[offset] == self.mask_token_id, "a revealed position was revealed again"
            tokens[offset] = token
        return tuple(tokens)

    def reveal(self, entries: Iterable[tuple[int, int]], steps: int, decoded: bool = True) -> "BlockState":
        """Return the state after `steps` more denoising steps, which revealed `entries`, pairs of (offset, token).

        decoded: False for tokens of the prompt, which leave a fresh block fresh.
        """
        tokens = self.with_tokens(entries)
        fresh = self.fresh and not (decoded and tokens != self.tokens)
        return BlockState(self.start, tokens, self.mask_token_id, self.step + steps, fresh)

    def following(self) -> "BlockState":
        """Return the next block, in which every position is open."""
        return BlockState(self.start + self.size, (self.mask_token_id,) * self.size, self.mask_token_id)

    def visible_end(
        self, params: DecodeParams, prompt_tokens: int, eos_token_ids: Sequence[int]
    ) -> tuple[int, FinishReason | None]:
        """Return the position before which the answer is visible, and the reason if the answer ends there.

        Tokens become visible in position order, up to the first open position, the first EOS or `max_tokens`, whichever
        comes first. The answer begins at position `prompt_tokens`. Only this block is searched for EOS.
        """
        closed = self.start + (self.size if self.full else self.tokens.index(self.mask_token_id))
        limit = prompt_tokens + params.max_tokens
        if not params.ignore_eos:
            for position in range(max(self.start, prompt_tokens), min(closed, limit)):
                if self.tokens[position - self.start] in eos_token_ids:
                    return position, "stop"
        return (limit, "length") if closed >= limit else (closed, None)
