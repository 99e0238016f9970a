"""Counter-based randomness.

Every random number is a function of the request's seed, the position, the number of tokens revealed in the block, a
purpose and the token. There is no generator state, so an answer depends only on its own request. One key for each row
is computed on the host, and the noise of the row's tokens is computed from it on the device.
"""

import functools
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SAMPLE, DRAFT, ACCEPT, RECOVER = range(4)
"""The purposes of a random number: the target's token (shared by drafts of `exact`), a drafted token, the accept test,
and the recovered token."""

_GOLDEN = 0x9E3779B97F4A7C15
_C1 = 0xBF58476D1CE4E5B9
_C2 = 0x94D049BB133111EB


_HALF = torch.tensor(0.5, dtype=torch.float64)
"""A float64 tensor, because adding a Python number to integers would give float32."""


def _signed(value: int) -> int:
    """Return the same 64 bits as an int64, which torch computes with. `value` must be 2**63 or more."""
    return value - 2**64


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the finaliser of splitmix64 (Steele, Lea, Flood 2014). Products wrap around."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_C1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_C2)
    return x ^ (x >> np.uint64(31))


def noise_keys(
    seed: NDArray[np.int64], position: NDArray[np.int64], revealed: NDArray[np.int64], purpose: int
) -> NDArray[np.int64]:
    """Return one key for each row, [M], from arguments of [M] each."""
    golden = np.uint64(_GOLDEN)
    key = _mix(seed.astype(np.uint64) + golden)
    for part in (position, revealed, np.full_like(position, purpose)):
        key = _mix(key + (part.astype(np.uint64) + np.uint64(1)) * golden)
    return key.view(np.int64)


class Counted(Protocol):
    """The numbers that the noise of each row depends on, [M] each (`sampling.RowParams`)."""

    @property
    def seed(self) -> NDArray[np.int64]: ...
    @property
    def position(self) -> NDArray[np.int64]: ...
    @property
    def revealed(self) -> NDArray[np.int64]: ...


def keys_of(counted: Counted, purpose: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the keys [R] of the rows with the indices `rows` [R]."""
    if not len(rows):
        return rows
    return noise_keys(counted.seed[rows], counted.position[rows], counted.revealed[rows], purpose)


def first_uniform(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return one number in the open interval (0, 1) for each key, [M]: the one that `uniform` gives for token 0."""
    bits = _mix(keys.view(np.uint64) + np.uint64(_GOLDEN)) >> np.uint64(11)
    numbers: NDArray[np.float64] = np.minimum((bits.astype(np.float64) + 0.5) * 2.0**-53, 1 - 2.0**-53)
    return numbers


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift int64 right, and fill with zeros."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def uniform(keys: Tensor, counters: Tensor) -> Tensor:
    """Return numbers in the open interval (0, 1), [M, T] float64, from keys [M] and counters [M, T] or [T], int64."""
    x = keys.unsqueeze(-1) + counters
    x = (x ^ _shift(x, 30)).mul_(_signed(_C1))
    x = (x ^ _shift(x, 27)).mul_(_signed(_C2))
    bits = _shift(x ^ _shift(x, 31), 11)
    return (bits + _HALF).mul_(2.0**-53).clamp_(max=1 - 2.0**-53)


def token_counters(tokens: Tensor) -> Tensor:
    """Return what each token adds to the key of its row; int64, of any shape."""
    return (tokens + 1) * _signed(_GOLDEN)


@functools.lru_cache(8)
def _all_counters(vocabulary: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return token_counters(torch.arange(vocabulary, device=device))


def gumbel_argmax(log_weights: Tensor, keys: Tensor, tokens: Tensor | None = None) -> Tensor:
    """Sample a column of each row in proportion to exp(log_weights), by the Gumbel-max trick.

    log_weights: [M, T]. keys: [M]. tokens: [M, T], the token ids of the columns if they are not 0..T-1, since noise
    belongs to the token. Returns the columns, [M] int64.
    """
    vocabulary, device = log_weights.shape[-1], log_weights.device
    counters = _all_counters(vocabulary, device) if tokens is None else token_counters(tokens)
    return (log_weights - torch.log(-torch.log(uniform(keys, counters)))).argmax(dim=-1)
