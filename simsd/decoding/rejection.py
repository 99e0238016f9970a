"""Rejection sampling's test of a drafted token (paper, section 3): half of it on the device, half on the host.

A token x that was drawn from q stands with probability min(1, p(x) / q(x)); one that falls is replaced by a draw from
norm(max(0, p - q)). What comes out is distributed as p, whatever q is.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


def residual(log_p: Tensor, tokens: Tensor, q_ids: Tensor, minus_q: Tensor) -> tuple[Tensor, Tensor]:
    """log_p [M, V] filtered; tokens [M] drafted; q_ids [M, k], a token at most once in each row, and the negative of
    their probabilities in q, minus_q [M, k] float32; all on one device.

    -> p of the drafted token [M], and log max(0, p - q) [M, V], from which a replacement is drawn.
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
    """Whether each drafted token stands: [M], on the host.

    uniform: numbers of the purpose ACCEPT [M]; tokens, q_ids, minus_q as of `residual`, p_drafted what it returned.
    replacement: the log-weight of each drawn replacement [M], which is -inf where p has nothing above q, so that the
    two are equal.
    """
    q_drafted = -np.where(q_ids == tokens[:, None], minus_q, np.float32(0)).sum(axis=1)
    stands: NDArray[np.bool_] = (uniform * q_drafted < p_drafted) | np.isneginf(replacement)
    return stands
