"""What a forward is asked: rows over a cached prefix, and the one rule of who sees whom.

A row carries its token and position and four facts: the *block* it belongs to, its *branch*, its *kind* (a data row
gives context, a mask row is where the model predicts, a solo row is a mask row that no other row sees) and its step
*tau*. Every layout is these facts and nothing else:

* commit (and prefill): data rows of whole blocks on the TRUNK branch; their KV is kept;
* denoise: the open block, revealed positions as data rows at tau 0, open ones as mask rows at tau NEVER;
* paired: data rows for revealed (tau 0) and drafted positions, a mask row for each open one, at its own tau or NEVER;
* branches: one denoise copy of the block per drafted state, each on its own branch;
* causal: data rows at a tau of their own from left to right, and solo rows that predict at the drafted ones.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

DATA, MASK, SOLO = 0, 1, 2
TRUNK = -1
NEVER = 2**30


@dataclass(slots=True)
class Rows:
    """The rows of one sequence in one forward, as parallel lists. The first `kept` rows are commits, their KV stays.

    `wants` lists the rows whose logits are needed.
    """

    token: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    block: list[int] = field(default_factory=list)
    branch: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    tau: list[int] = field(default_factory=list)
    wants: list[int] = field(default_factory=list)
    kept: int = 0

    def __len__(self) -> int:
        return len(self.token)

    def _add(self, token: int, position: int, block: int, branch: int, kind: int, tau: int) -> None:
        self.token.append(token)
        self.position.append(position)
        self.block.append(block)
        self.branch.append(branch)
        self.kind.append(kind)
        self.tau.append(tau)

    def commit(self, tokens: list[int], start: int, block_size: int) -> None:
        """Whole blocks from position `start` on; before any other rows."""
        assert self.kept == len(self) and len(tokens) % block_size == 0
        self._trunk(tokens, start, block_size)
        self.kept = len(self)

    def assume(self, block: list[int], start: int) -> None:
        """A whole block at position `start` that is seen like a committed one, but not kept."""
        self._trunk(block, start, len(block))

    def _trunk(self, tokens: list[int], start: int, block_size: int) -> None:
        for position, token in enumerate(tokens, start):
            self._add(token, position, position // block_size, TRUNK, DATA, 0)

    def denoise(self, block: list[int], start: int, mask_token_id: int, branch: int = 0) -> None:
        """A copy of the open block at position `start`: every row sees every other; open rows want logits."""
        index = start // len(block)
        for offset, token in enumerate(block):
            if token == mask_token_id:
                self.wants.append(len(self))
                self._add(token, start + offset, index, branch, MASK, NEVER)
            else:
                self._add(token, start + offset, index, branch, DATA, 0)

    def paired(
        self,
        block: list[int],
        start: int,
        mask_token_id: int,
        offsets: list[int],
        tokens: list[int],
        aligned: bool = True,
    ) -> None:
        """SimSD's layout (paper section 3): candidates `tokens` at `offsets` in step order, mask rows in offset order.

        `aligned` False numbers the mask slots onward instead of sharing their data row's position: the paper's
        ablation.
        """
        index, size = start // len(block), len(block)
        tau = dict(zip(offsets, range(1, len(offsets) + 1), strict=True))
        drafted = dict(zip(offsets, tokens, strict=True))
        for offset, token in enumerate(block):
            if token != mask_token_id:
                self._add(token, start + offset, index, 0, DATA, 0)
            elif offset in drafted:
                self._add(drafted[offset], start + offset, index, 0, DATA, tau[offset])
        for offset, token in enumerate(block):
            if token == mask_token_id:
                self.wants.append(len(self))
                position = start + offset if aligned else start + offset + size
                self._add(mask_token_id, position, index, 0, MASK, tau.get(offset, NEVER))

    def causal(self, block: list[int], start: int, mask_token_id: int, offsets: list[int], tokens: list[int]) -> None:
        """S2D2's verification: the block read from left to right, candidates `tokens` at ascending `offsets` in it."""
        index, filled = start // len(block), list(block)
        for offset, token in zip(offsets, tokens, strict=True):
            filled[offset] = token
        for offset in range(offsets[-1]):  # what lies behind is seen by nobody
            self._add(filled[offset], start + offset, index, 0, DATA, offset)
        for offset in offsets:
            self.wants.append(len(self))
            self._add(mask_token_id, start + offset, index, 0, SOLO, offset)


def visibility(block: Tensor, branch: Tensor, kind: Tensor, tau: Tensor) -> Tensor:
    """Who sees whom among rows. All four facts int64 [..., R] -> bool [..., R, R], entry (i, j): row i sees row j.

    Within a block and branch, the paper's four rules: D->D tau_j <= tau_i, D->M tau_j > tau_i, M->D tau_j < tau_i,
    M->M tau_j >= tau_i; that is, earlier data and later masks, and at equal tau one's own kind. A solo row sees earlier
    data and itself. Across blocks, a row sees the committed rows of earlier blocks.
    """
    assert block.shape == branch.shape == kind.shape == tau.shape
    row_block, column_block = block.unsqueeze(-1), block.unsqueeze(-2)
    row_tau, column_tau = tau.unsqueeze(-1), tau.unsqueeze(-2)
    column_kind, column_branch = kind.unsqueeze(-2), branch.unsqueeze(-2)
    in_time = torch.where(column_kind == DATA, column_tau < row_tau, (column_tau > row_tau) & (column_kind == MASK))
    in_time |= (column_tau == row_tau) & (column_kind == kind.unsqueeze(-1))
    together = (row_block == column_block) & (branch.unsqueeze(-1) == column_branch)
    return (together & in_time) | ((column_branch == TRUNK) & (column_block < row_block))
