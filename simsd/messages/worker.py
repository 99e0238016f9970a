"""What a worker says of itself."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["draft", "target"]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker says of itself; the loop plans with it and `check_pair` compares two.

    weights_hash: of the weights that it runs, whatever its name (`simsd.models.loading`); empty until they are read.
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
        """Pages that hold `tokens` tokens."""
        return -(-tokens // self.page_size)


@dataclass(frozen=True, slots=True)
class PageUse:
    """Pages of a worker's pool: `held` by sequences, `cached` for reuse only, `free`."""

    held: int
    cached: int
    free: int
    sequences: int
