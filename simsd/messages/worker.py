"""What a worker reports about itself."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["draft", "target"]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """The description of a worker. The loop plans with it, and `check_pair` compares two of them.

    weights_hash: a hash of the weights that the worker runs (`simsd.models.loading`), which does not depend on the
    model's name. It is empty until the weights have been read.
    max_model_len: most tokens of prompt and answer together, a whole number of blocks.
    page_size: tokens that a KV page holds. pages: pages of the pool. max_rows: most rows of one forward.
    """

    role: Role
    model: str
    weights_hash: str
    architecture: str
    vocab_size: int
    tokenizer_hash: str
    mask_token_id: int
    block_size: int
    eos_token_ids: tuple[int, ...]
    max_model_len: int
    page_size: int
    pages: int
    max_rows: int
    device: str
    dtype: str

    def pages_needed(self, tokens: int) -> int:
        """Return how many pages it takes to hold `tokens` tokens."""
        return -(-tokens // self.page_size)


@dataclass(frozen=True, slots=True)
class PageUse:
    """How the pages of a worker's pool are used.

    `held` pages belong to `sequences` running sequences. `cached` pages are kept only for the prefix cache. The others
    are `free`.
    """

    held: int
    cached: int
    free: int
    sequences: int
