"""Counter-based randomness and what it samples from.

Every random number is a function of (request seed, position, tokens revealed in the block, purpose, token). There is no
generator state, so an answer depends on nothing but its own request. Keys, one a row, are computed on the host; the
noise of a row's tokens is made on the device.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simsd.messages.round import Work
from simsd.verification.accept import Scores
from simsd.verification.schemes import Want

SAMPLE, DRAFT, ACCEPT, RECOVER = range(4)
"""Purposes: the target's token (`exact` drafts share it), a draft's, the accept test, the recovered token."""

_GOLDEN = 0x9E3779B97F4A7C15
_C1 = 0xBF58476D1CE4E5B9
_C2 = 0x94D049BB133111EB


_HALF = torch.tensor(0.5, dtype=torch.float64)
"""As a tensor, since a number would turn integers into float32."""


def _signed(value: int) -> int:
    """The same 64 bits as an int64, which is what torch computes with."""
    return value - 2**64


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014); products wrap."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_C1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_C2)
    return x ^ (x >> np.uint64(31))


def noise_keys(
    seed: NDArray[np.int64], position: NDArray[np.int64], revealed: NDArray[np.int64], purpose: int
) -> NDArray[np.int64]:
    """One key per row; all arguments [M] -> [M]."""
    golden = np.uint64(_GOLDEN)
    key = _mix(seed.astype(np.uint64) + golden)
    for part in (position, revealed, np.full_like(position, purpose)):
        key = _mix(key + (part.astype(np.uint64) + np.uint64(1)) * golden)
    return key.view(np.int64)


def first_uniform(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """One number a key [M] -> [M] in the open interval (0, 1): that of token 0, as `uniform` has it."""
    bits = _mix(keys.view(np.uint64) + np.uint64(_GOLDEN)) >> np.uint64(11)
    numbers: NDArray[np.float64] = np.minimum((bits.astype(np.float64) + 0.5) * 2.0**-53, 1 - 2.0**-53)
    return numbers


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def uniform(keys: Tensor, counters: Tensor) -> Tensor:
    """keys [M], counters int64 [M, T] or [T] -> float64 in the open interval (0, 1), [M, T]."""
    x = keys.unsqueeze(-1) + counters
    x = (x ^ _shift(x, 30)).mul_(_signed(_C1))
    x = (x ^ _shift(x, 27)).mul_(_signed(_C2))
    bits = _shift(x ^ _shift(x, 31), 11)
    return (bits + _HALF).mul_(2.0**-53).clamp_(max=1 - 2.0**-53)


def token_counters(tokens: Tensor) -> Tensor:
    """What a token adds to its row's key; int64, any shape."""
    return (tokens + 1) * _signed(_GOLDEN)


@functools.lru_cache(8)
def _all_counters(vocabulary: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return token_counters(torch.arange(vocabulary, device=device))


def gumbel_argmax(log_weights: Tensor, keys: Tensor, tokens: Tensor | None = None) -> Tensor:
    """Sample a column of each row in proportion to exp(log_weights) [M, T] -> int64 [M].

    `tokens` [M, T] are the token ids of the columns, if they are not 0..T-1: noise belongs to the token.
    """
    vocabulary, device = log_weights.shape[-1], log_weights.device
    counters = _all_counters(vocabulary, device) if tokens is None else token_counters(tokens)
    return (log_weights - torch.log(-torch.log(uniform(keys, counters)))).argmax(dim=-1)


@dataclass(slots=True)
class RowParams:
    """Sampling settings per logits row, on the host, [M] each. Rows at temperature 0 are not `warm`."""

    wants: list[Want]
    temperature: NDArray[np.float32]
    seed: NDArray[np.int64]
    position: NDArray[np.int64]
    revealed: NDArray[np.int64]

    @classmethod
    def build(cls, wants: list[Want]) -> "RowParams":
        temperature = np.array([p.temperature for p, _, _ in wants], np.float32)
        ints = np.array([(p.seed, position, revealed) for p, position, revealed in wants], np.int64).reshape(-1, 3)
        return cls(wants, temperature, *np.ascontiguousarray(ints.T))

    @property
    def warm(self) -> NDArray[np.bool_]:
        return self.temperature > 0

    def keys(self, purpose: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return noise_keys(self.seed[rows], self.position[rows], self.revealed[rows], purpose)

    def filters(self, vocabulary: int) -> dict[str, NDArray[Any]]:
        """What `filtered_log_probs` reads, as far as any row needs it."""
        warm = self.warm
        found: dict[str, NDArray[Any]] = {}
        if (warm & (self.temperature != 1)).any():
            found["temperature"] = np.where(warm, self.temperature, np.float32(1))[:, None]
        cut = [p.temperature > 0 and (p.top_k > 0 or p.top_p < 1 or p.min_p > 0) for p, _, _ in self.wants]
        if any(cut):
            settings = [(p, on) for (p, _, _), on in zip(self.wants, cut, strict=True)]
            top_k = [min(p.top_k or vocabulary, vocabulary) if on else vocabulary for p, on in settings]
            top_p = [p.top_p if on and p.top_p < 1 else math.inf for p, on in settings]
            min_p = [p.min_p if on else 0.0 for p, on in settings]
            with np.errstate(divide="ignore"):
                found["log_min_p"] = np.log(np.array(min_p, np.float32))[:, None]
            found["top_k"] = np.array(top_k, np.int64)[:, None]
            found["top_p"] = np.array(top_p, np.float32)[:, None]
        return found


def adjustments(
    asked: Iterable[tuple[Work, range]], wants: list[Want], eos_token_ids: Sequence[int]
) -> dict[str, NDArray[Any]]:
    """What requests add to the logits themselves, as (row, token id, by) for `adjust`: biases, no EOS too early.

    asked: each sequence's work and the logits rows that are its own.
    """
    rows, ids, by = [], [], []
    for work, span in asked:
        params = work.params
        if params.logit_bias:
            tokens, biases = zip(*params.logit_bias, strict=True)
            rows.append(np.repeat(span, len(tokens)))
            ids.append(np.tile(tokens, len(span)))
            by.append(np.tile(np.array(biases, np.float32), len(span)))
        if params.min_tokens and eos_token_ids:
            allowed_from = work.prompt_tokens + params.min_tokens
            early = [row for row in span if wants[row][1] < allowed_from]
            rows.append(np.repeat(np.array(early, np.int64), len(eos_token_ids)))
            ids.append(np.tile(eos_token_ids, len(early)))
            by.append(np.full(len(ids[-1]), -np.inf, np.float32))
    if not rows:
        return {}
    integers = {"adjusted_rows": np.concatenate(rows), "adjusted_ids": np.concatenate(ids)}
    return {name: each.astype(np.int64) for name, each in integers.items()} | {"adjusted_by": np.concatenate(by)}


def adjust(logits: Tensor, mask_token_id: int, sent: dict[str, Tensor]) -> None:
    """Make the mask token impossible, and add `adjustments`; logits [M, V], in place."""
    logits[:, mask_token_id].fill_(-math.inf)
    if "adjusted_rows" in sent:
        logits.index_put_((sent["adjusted_rows"], sent["adjusted_ids"]), sent["adjusted_by"], accumulate=True)


def filtered_log_probs(logits: Tensor, filters: dict[str, Tensor]) -> Tensor:
    """log p after temperature, then min-p, top-k, top-p; [M, V] float32 -> [M, V], -inf where filtered away.

    filters: of `RowParams.filters`, on the logits' device. Rows at temperature 0 come out unscaled and unfiltered: they
    are only asked for confidences. min-p keeps tokens of at least min_p times the likeliest one's probability. A token
    tied with the k-th is kept; top-p keeps the smallest set of likeliest tokens whose mass reaches p.
    """
    assert logits.ndim == 2
    if "temperature" in filters:
        logits = logits / filters["temperature"]
    log_probs = logits.log_softmax(dim=-1)
    if "top_k" not in filters:
        return log_probs
    ordered, order = log_probs.sort(dim=-1, descending=True)
    floor = ordered[:, :1] + filters["log_min_p"]
    ordered = ordered.masked_fill(ordered < floor, -math.inf).log_softmax(dim=-1)
    rank = torch.arange(logits.shape[-1], device=logits.device)
    k = filters["top_k"]
    threshold = ordered.gather(1, k - 1)
    ordered = ordered.masked_fill((ordered < threshold) & (rank >= k), -math.inf).log_softmax(dim=-1)
    mass = ordered.exp()
    beyond = (mass.cumsum(dim=-1) - mass >= filters["top_p"]) & (rank > 0)
    ordered = ordered.masked_fill(beyond, -math.inf).log_softmax(dim=-1)
    return torch.empty_like(log_probs).scatter_(1, order, ordered)


def scores_of(read: dict[str, Tensor], sampled: NDArray[np.int64]) -> Scores:
    """From what was brought to the host: `top` and `best` [M], `picks` and `picked` of the `sampled` rows first.

    Without `top`, no row is read for its best token.
    """
    if "top" not in read:
        return Scores([], [], [], [])
    top = read["top"].exp().tolist()
    token, confidence = read["best"].tolist(), list(top)
    entropy = read["entropy"].tolist() if "entropy" in read else []
    if len(sampled):
        chances = read["picked"][: len(sampled)].exp().tolist()
        for row, pick, chance in zip(sampled.tolist(), read["picks"].tolist(), chances, strict=False):
            token[row], confidence[row] = pick, chance
    return Scores(token, confidence, top, entropy)


def select(values: Tensor, rows: NDArray[np.int64], sent: Tensor) -> Tensor:
    """`rows` of values [M, ...]; `sent` are the same on its device. All of them in order need no copy."""
    every = len(rows) == len(values) and bool((np.diff(rows) == 1).all())
    return values if every else values[sent]


def entropies(log_probs: Tensor) -> Tensor:
    """Of each row of [M, V], in nats: [M]."""
    return torch.special.entr(log_probs.exp()).sum(dim=-1)
