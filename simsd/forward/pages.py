"""Pages of KV memory and the sequences that hold them.

Each layer has a tensor [slots, 2, kv_heads, head_dim]. A slot is one position of one sequence. A page is `page_size`
slots, which are a whole number of blocks. After the pages come `max_rows` scratch slots for rows whose KV is not kept,
and one slot for padding.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simsd.errors import InternalError
from simsd.forward.prefix_cache import PrefixCache
from simsd.messages.worker import PageUse


@dataclass(slots=True)
class SequenceKV:
    """What the pool knows about a sequence.

    pages: its pages. slots: int64, the slots of these pages in order. tokens: the tokens whose KV is committed.
    prefix_hit: how many of them came from the prefix cache. hashes: the prefix cache's key of each full page.
    assumed: tokens of whole blocks behind `tokens` that are not decided yet, whose KV is in the next slots. It is never
    shared, and it is overwritten if other tokens come to stand there.
    """

    pages: list[int]
    slots: NDArray[np.int64]
    tokens: list[int]
    prefix_hit: int
    hashes: list[bytes] = field(default_factory=list)
    assumed: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        """How many tokens a forward sees before its own rows: the committed ones and the assumed ones."""
        return len(self.tokens) + len(self.assumed)


class PagePool:
    """Allocates pages to sequences. A page is free, held by sequences (`refs` counts them), or cached until evicted."""

    def __init__(self, pages: int, page_size: int, prefix_cache: bool = True) -> None:
        self.page_size = page_size
        self.refs = [0] * pages
        self.free = list(range(pages - 1, -1, -1))
        self.prefix = PrefixCache(page_size) if prefix_cache else None
        self.sequences: dict[str, SequenceKV] = {}

    def open(self, seq_id: str, total_tokens: int, tokens: list[int]) -> SequenceKV:
        """Reserve pages for `total_tokens`. Pages that hold a prefix of `tokens` already are shared, not allocated.

        `InternalError` if there are not enough pages, which the loop must prevent.
        """
        assert seq_id not in self.sequences
        hits = self.prefix.match(tokens) if self.prefix else []
        for page, _ in hits:
            self._hold(page)
        fresh = -(-total_tokens // self.page_size) - len(hits)
        if fresh > len(self.free) + (self.prefix.idle_pages if self.prefix else 0):
            for page, _ in hits:
                self._drop(page)
            raise InternalError(f"page pool: {fresh} pages needed for {seq_id}, {len(self.free)} free")
        pages = [page for page, _ in hits] + [self._take() for _ in range(fresh)]
        slots = (np.array(pages)[:, None] * self.page_size + np.arange(self.page_size)).ravel()
        hit = len(hits) * self.page_size
        sequence = SequenceKV(pages, slots, tokens[:hit], hit, [digest for _, digest in hits])
        self.sequences[seq_id] = sequence
        return sequence

    def advance(self, sequence: SequenceKV, tokens: list[int]) -> None:
        """Note that `tokens` were committed: their KV is in the sequence's next slots. Full pages can be shared."""
        sequence.tokens.extend(tokens)
        if self.prefix is None:
            return
        while (done := len(sequence.hashes) * self.page_size) + self.page_size <= len(sequence.tokens):
            page_tokens = sequence.tokens[done : done + self.page_size]
            page = sequence.pages[len(sequence.hashes)]
            previous = sequence.hashes[-1] if sequence.hashes else b""
            sequence.hashes.append(self.prefix.add(page, previous, page_tokens))

    def settle(self, sequence: SequenceKV, known: list[int], assumed: list[int], block_size: int) -> None:
        """Sort out the assumed blocks, now that the tokens `known` stand behind the committed ones.

        Assumed blocks that equal `known` are committed. Those behind them are kept as far as they equal `assumed`,
        which is still taken for granted, and the others are forgotten. All lists are whole blocks.
        """
        expected, agree = known + assumed, 0
        for start in range(0, min(len(sequence.assumed), len(expected)), block_size):
            if sequence.assumed[start : start + block_size] != expected[start : start + block_size]:
                break
            agree = start + block_size
        stand = min(agree, len(known))
        sequence.assumed = sequence.assumed[stand:agree]
        self.advance(sequence, known[:stand])

    def release(self, seq_id: str) -> None:
        """Free a sequence's pages. An unknown id is ignored."""
        sequence = self.sequences.pop(seq_id, None)
        for page in reversed(sequence.pages if sequence else []):  # The first page, the most useful, is evicted last.
            self._drop(page)

    def use(self) -> PageUse:
        cached = self.prefix.idle_pages if self.prefix else 0
        return PageUse(len(self.refs) - cached - len(self.free), cached, len(self.free), len(self.sequences))

    def check_integrity(self) -> None:
        """Check that every page is in exactly one place and its count is right; `InternalError` otherwise."""
        held = [0] * len(self.refs)
        for sequence in self.sequences.values():
            for page in sequence.pages:
                held[page] += 1
        if held != self.refs:
            raise InternalError("page pool: reference counts differ from what sequences hold")
        idle = self.prefix.idle() if self.prefix else []
        places = sorted(self.free + idle + [page for page, count in enumerate(held) if count])
        if places != list(range(len(self.refs))):
            raise InternalError("page pool: a page is lost or in two places")

    def _hold(self, page: int) -> None:
        if self.refs[page] == 0 and self.prefix:
            self.prefix.wake(page)
        self.refs[page] += 1

    def _take(self) -> int:
        if self.free:
            page = self.free.pop()
        else:
            assert self.prefix is not None
            page = self.prefix.evict()
        self.refs[page] = 1
        return page

    def _drop(self, page: int) -> None:
        self.refs[page] -= 1
        if self.refs[page] == 0 and not (self.prefix and self.prefix.rest(page)):
            self.free.append(page)


def kv_tensors(
    layers: int,
    pages: int,
    page_size: int,
    max_rows: int,
    kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: str,
) -> list[Tensor]:
    """Return a tensor [pages * page_size + max_rows + 1, 2, kv_heads, head_dim] for each layer.

    The last slot is the one that padding writes to. The tensors are zeroed, because even masked slots must be finite.
    """
    shape = pages * page_size + max_rows + 1, 2, kv_heads, head_dim
    return [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
