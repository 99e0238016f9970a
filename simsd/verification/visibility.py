"""Who sees whom among the rows of a forward: the one rule, in one place (docs/algorithm.md)."""

import functools

import numpy as np
from numpy.typing import NDArray

from simsd.verification.rows import DATA, MASK, TRUNK, Rows

CACHED_ROWS = 128
"""A mask of more rows is not kept."""

Facts = NDArray[np.int64]


def hidden(rows: Rows) -> NDArray[np.bool_]:
    """[R, R]: who does not see whom. Most are like one of a few that came before, but for the block they are in."""
    first = rows.block[0]
    block = tuple(index - first for index in rows.block)
    find = _hidden if len(block) <= CACHED_ROWS else _hidden.__wrapped__
    return find(block, tuple(rows.branch), tuple(rows.kind), tuple(rows.tau))


@functools.lru_cache(1024)
def _hidden(*facts: tuple[int, ...]) -> NDArray[np.bool_]:
    return ~visibility(*map(np.array, facts))


def visibility(block: Facts, branch: Facts, kind: Facts, tau: Facts) -> NDArray[np.bool_]:
    """Who sees whom among rows. All four facts [..., R] -> [..., R, R], entry (i, j): row i sees row j.

    Within a block and branch, the paper's four rules: D->D tau_j <= tau_i, D->M tau_j > tau_i, M->D tau_j < tau_i,
    M->M tau_j >= tau_i; that is, earlier data and later masks, and at equal tau one's own kind. A solo row sees earlier
    data and itself. Across blocks, a row sees the committed rows of earlier blocks.
    """
    assert block.shape == branch.shape == kind.shape == tau.shape
    row_block, column_block = block[..., :, None], block[..., None, :]
    row_tau, column_tau = tau[..., :, None], tau[..., None, :]
    column_kind, column_branch = kind[..., None, :], branch[..., None, :]
    in_time = np.where(column_kind == DATA, column_tau < row_tau, (column_tau > row_tau) & (column_kind == MASK))
    in_time |= (column_tau == row_tau) & (column_kind == kind[..., :, None])
    together = (row_block == column_block) & (branch[..., :, None] == column_branch)
    seen: NDArray[np.bool_] = (together & in_time) | ((column_branch == TRUNK) & (column_block < row_block))
    return seen
