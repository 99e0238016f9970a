"""The rows of a forward, over a cached prefix. Which rows see each other follows from four facts (`visibility`).

A row has a token, a position and four facts: its *block*, its *branch*, its *kind* and its step *tau*. A data row gives
context. A mask row is where the model predicts. A solo row is a mask row that no other row sees. These facts describe
every layout (docs/algorithm.md):

* commit and prefill: data rows of whole blocks on the TRUNK branch, whose KV is kept;
* assume: the same for drafted blocks that are not decided yet, between the rows of the blocks before and after them;
* denoise: the open block, with data rows at tau 0 for revealed positions and mask rows at tau NEVER for open ones;
* paired: data rows for revealed positions (tau 0) and drafted ones (their step), and a mask row for each open position,
  at the same step if it was drafted, else at NEVER;
* branches: a copy of the block, laid as for denoise, for each drafted state, each on a branch of its own;
* causal: data rows from left to right, whose tau is their offset, and a solo row for each drafted position.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

DATA, MASK, SOLO = 0, 1, 2
TRUNK = -1
NEVER = 2**30


@dataclass(slots=True)
class Rows:
    """The rows of one sequence in one forward, as parallel lists of length R.

    token, position: the token id and the position id. block, branch, kind, tau: the four facts of each row.
    wants: the indices of the rows whose logits are needed. kept: how many of the first rows are commits, whose KV is
    kept after the forward. assumed: the indices of the rows of blocks that are taken for granted, in order.
    """

    token: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    block: list[int] = field(default_factory=list)
    branch: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    tau: list[int] = field(default_factory=list)
    wants: list[int] = field(default_factory=list)
    kept: int = 0
    assumed: list[int] = field(default_factory=list)

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
        """Add whole blocks from position `start` on, to be kept. They must come before all other rows."""
        assert self.kept == len(self) and len(tokens) % block_size == 0
        self._trunk(tokens, start, block_size)
        self.kept = len(self)

    def assume(self, tokens: Sequence[int], start: int, block_size: int) -> None:
        """Add whole blocks from position `start` on that are seen like committed ones, but are not decided yet.

        Their KV goes to the sequence's own next slots, as that of commits does. If they come to stand as assumed, they
        are committed without another forward (`PagePool.settle`); if not, their KV is overwritten.
        """
        assert len(tokens) % block_size == 0
        self.assumed += range(len(self), len(self) + len(tokens))
        self._trunk(tokens, start, block_size)

    def _trunk(self, tokens: Sequence[int], start: int, block_size: int) -> None:
        count, positions = len(tokens), range(start, start + len(tokens))
        self.token += tokens
        self.position += positions
        self.block += [position // block_size for position in positions]
        self.branch += [TRUNK] * count
        self.kind += [DATA] * count
        self.tau += [0] * count

    def denoise(self, block: Sequence[int], start: int, mask_token_id: int, branch: int = 0) -> None:
        """Add a copy of the open block at position `start`. All its rows see each other, and open ones want logits."""
        count, first = len(block), len(self)
        self.wants += [first + offset for offset, token in enumerate(block) if token == mask_token_id]
        self.token += block
        self.position += range(start, start + count)
        self.block += [start // count] * count
        self.branch += [branch] * count
        self.kind += [MASK if token == mask_token_id else DATA for token in block]
        self.tau += [NEVER if token == mask_token_id else 0 for token in block]

    def paired(
        self,
        block: Sequence[int],
        start: int,
        mask_token_id: int,
        offsets: list[int],
        tokens: list[int],
        aligned: bool = True,
    ) -> None:
        """Add SimSD's paired rows (paper, section 3), whose mask rows want logits and come in the order of offsets.

        offsets, tokens: the drafted tokens, in step order. aligned: whether the data and the mask row of a position
        share its position id. False numbers the mask rows onward, as the paper's ablation does (section 4).
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

    def causal(
        self, block: Sequence[int], start: int, mask_token_id: int, offsets: list[int], tokens: list[int]
    ) -> None:
        """Add S2D2's verification: the block read from left to right, and a solo row for each drafted token.

        offsets, tokens: the drafted tokens, in ascending order of their offsets. The solo rows want logits.
        """
        index, filled = start // len(block), list(block)
        for offset, token in zip(offsets, tokens, strict=True):
            filled[offset] = token
        for offset in range(offsets[-1]):  # No row sees the last drafted token or what comes after it.
            self._add(filled[offset], start + offset, index, 0, DATA, offset)
        for offset in offsets:
            self.wants.append(len(self))
            self._add(mask_token_id, start + offset, index, 0, SOLO, offset)
