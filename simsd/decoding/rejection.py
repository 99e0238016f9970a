"""Rejection sampling's test of a drafted token (paper, section 3), partly on the device and partly on the host.

A token x that was sampled from q stands with probability min(1, p(x) / q(x)). A rejected token is replaced by a sample
from max(0, p - q), normalised. The result is distributed as p, whatever q is.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


def residual(log_p: Tensor, tokens: Tensor, q_ids: Tensor, minus_q: Tensor) -> tuple[Tensor, Tensor]:
    """Return p of each drafted token, [M], and log max(0, p - q), [M, V], from which a replacement is sampled.

    log_p: [M, V], filtered log-probabilities. tokens: [M], the drafted tokens. q_ids: [M, k], the token ids of q; a
    token occurs with a probability above 0 at most once in a row. minus_q: [M, k] float32, their probabilities,
    negated. All tensors are on one device.
    """
    assert log_p.ndim == 2 and q_ids.shape == minus_q.shape
    p = log_p.exp()
    p_drafted = p.gather(1, tokens.unsqueeze(1)).squeeze(1)
    return p_drafted, p.scatter_add_(1, q_ids, minus_q).clamp_(min=0).log_()


def accepted(
    uniform: NDArray[np.float64],
    tokens: NDArray[np.int64],
    q_ids: NDArray[np.int64],
    minus_q: NDArray[np.float32],
    p_drafted: NDArray[np.float32],
    replacement: NDArray[np.float32],
) -> NDArray[np.bool_]:
    """Return whether each drafted token stands, [M]. All arrays are on the host.

    uniform: [M], random numbers of the purpose ACCEPT. tokens, q_ids, minus_q: as in `residual`. p_drafted: [M], its
    first result. replacement: [M], the log-weight of each sampled replacement; it is -inf if p nowhere exceeds q, that
    is, if both are equal and the token must stand.
    """
    q_drafted = -np.where(q_ids == tokens[:, None], minus_q, np.float32(0)).sum(axis=1)
    stands: NDArray[np.bool_] = (uniform * q_drafted < p_drafted) | np.isneginf(replacement)
    return stands
