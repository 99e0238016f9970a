"""How a request's settings change the model's distribution: biases, temperature, min-p, top-k and top-p."""

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simsd.messages.round import Work
from simsd.verification.schemes import Want


class RowParams:
    """The sampling settings of each logits row, [M] each, on the host. Rows above temperature 0 are `warm`.

    seed, position, revealed: what the row's noise is a function of (simsd/decoding/noise.py).
    """

    def __init__(self, wants: list[Want]) -> None:
        self.wants = wants
        self.temperature = np.array([params.temperature for params, _, _ in wants], np.float32)
        self.warm: NDArray[np.bool_] = self.temperature > 0
        self.any_warm = bool(self.warm.any())

    @cached_property
    def seed(self) -> NDArray[np.int64]:
        return np.array([params.seed for params, _, _ in self.wants], np.int64)

    @cached_property
    def position(self) -> NDArray[np.int64]:
        return np.array([position for _, position, _ in self.wants], np.int64)

    @cached_property
    def revealed(self) -> NDArray[np.int64]:
        return np.array([revealed for _, _, revealed in self.wants], np.int64)

    def filters(self, vocabulary: int) -> dict[str, NDArray[Any]]:
        """Return the arrays that the functions below read, without those that no row needs."""
        warm = self.warm
        found: dict[str, NDArray[Any]] = {}
        if not self.any_warm:
            return found
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
    """Return what requests add to the logits, as arrays of rows, token ids and values for `adjust`.

    These are the biases of `logit_bias`, and -inf for EOS before `min_tokens`. Both are about the answer, so rows at
    positions of the prompt, whose tokens only get log-probabilities, are left as they are. asked: each sequence's work,
    and the logits rows that belong to it.
    """
    rows, ids, by = [], [], []
    for work, all_rows in asked:
        params = work.params
        span = [row for row in all_rows if wants[row][1] >= work.prompt_tokens] if work.forced else all_rows
        if params.logit_bias:
            tokens, biases = zip(*params.logit_bias, strict=True)
            rows.append(np.repeat(span, len(tokens)))
            ids.append(np.tile(tokens, len(span)))
            by.append(np.tile(np.array(biases, np.float32), len(span)))
        if params.min_tokens and eos_token_ids:
            allowed_from = work.prompt_tokens + params.min_tokens
            early = [row for row in span if wants[row][1] < allowed_from]
            if not early:
                continue
            rows.append(np.repeat(np.array(early, np.int64), len(eos_token_ids)))
            ids.append(np.tile(eos_token_ids, len(early)))
            by.append(np.full(len(ids[-1]), -np.inf, np.float32))
    if not rows:
        return {}
    integers = {"adjusted_rows": np.concatenate(rows), "adjusted_ids": np.concatenate(ids)}
    return {name: each.astype(np.int64) for name, each in integers.items()} | {"adjusted_by": np.concatenate(by)}


def adjust(logits: Tensor, mask_token_id: int, sent: dict[str, Tensor]) -> None:
    """Make the mask token impossible and add the `adjustments`, in place. logits: [M, V]."""
    logits[:, mask_token_id].fill_(-math.inf)
    if "adjusted_rows" in sent:
        logits.index_put_((sent["adjusted_rows"], sent["adjusted_ids"]), sent["adjusted_by"], accumulate=True)


def log_probs_at_temperature(logits: Tensor, filters: dict[str, Tensor]) -> Tensor:
    """Return the model's log p [M, V] after temperature, of which confidence and entropy are read.

    logits: [M, V] float32. filters: those of `RowParams.filters`, on the same device. Rows at temperature 0 are not
    scaled.
    """
    assert logits.ndim == 2
    if "temperature" in filters:
        logits = logits / filters["temperature"]
    return logits.log_softmax(dim=-1)


def filtered_log_probs(log_probs: Tensor, filters: dict[str, Tensor]) -> Tensor:
    """Return log p [M, V] after min-p, top-k and top-p, of which tokens are sampled.

    log_probs: [M, V] after temperature; the result is the same tensor if no row has a filter. Tokens that are filtered
    out have -inf. min-p keeps tokens with at least min_p times the probability of the likeliest one. top-k also keeps
    tokens that are tied with the k-th. top-p keeps the smallest set of likeliest tokens whose mass reaches p. Rows at
    temperature 0 are not filtered.
    """
    if "top_k" not in filters:
        return log_probs
    ordered, order = log_probs.sort(dim=-1, descending=True)
    floor = ordered[:, :1] + filters["log_min_p"]
    ordered = ordered.masked_fill(ordered < floor, -math.inf).log_softmax(dim=-1)
    rank = torch.arange(log_probs.shape[-1], device=log_probs.device)
    k = filters["top_k"]
    threshold = ordered.gather(1, k - 1)
    ordered = ordered.masked_fill((ordered < threshold) & (rank >= k), -math.inf).log_softmax(dim=-1)
    mass = ordered.exp()
    beyond = (mass.cumsum(dim=-1) - mass >= filters["top_p"]) & (rank > 0)
    ordered = ordered.masked_fill(beyond, -math.inf).log_softmax(dim=-1)
    return torch.empty_like(log_probs).scatter_(1, order, ordered)


def entropies(log_probs: Tensor) -> Tensor:
    """Return the entropy of each row of log_probs [M, V], in nats: [M]."""
    return torch.special.entr(log_probs.exp()).sum(dim=-1)
