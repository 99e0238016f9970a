"""Which rows of a forward see each other: the only place of that rule (docs/algorithm.md)."""

import functools

import numpy as np
from numpy.typing import NDArray

from simsd.verification.rows import DATA, MASK, TRUNK, Rows

CACHED_ROWS = 128
"""Masks of more rows than this are not cached."""

Facts = NDArray[np.int64]


def hidden(rows: Rows) -> NDArray[np.bool_]:
    """Return the attention mask [R, R] of one sequence: whether row i does not see row j.

    Small masks are cached, since only the numbers of the blocks differ between most of them.
    """
    first = rows.block[0]
    block = tuple(index - first for index in rows.block)
    find = _hidden if len(block) <= CACHED_ROWS else _hidden.__wrapped__
    return find(block, tuple(rows.branch), tuple(rows.kind), tuple(rows.tau))


@functools.lru_cache(1024)
def _hidden(*facts: tuple[int, ...]) -> NDArray[np.bool_]:
    return ~visibility(*map(np.array, facts))


def visibility(block: Facts, branch: Facts, kind: Facts, tau: Facts) -> NDArray[np.bool_]:
    """Return whether row i sees row j, [..., R, R], from the four facts of the rows, [..., R] each.

    Within a block and branch the paper's four rules hold (section 3). A data row i sees a data row j if tau_j <= tau_i,
    and a mask row j if tau_j > tau_i. A mask row i sees a data row j if tau_j < tau_i, and a mask row j if
    tau_j >= tau_i. So a row sees earlier data and later masks, and at equal tau its own kind. A solo row sees earlier
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
