"""What a forward is asked: rows over a cached prefix. Who sees whom follows from their facts (`visibility`).

A row carries its token and position and four facts: the *block* it belongs to, its *branch*, its *kind* (a data row
gives context, a mask row is where the model predicts, a solo row is a mask row that no other row sees) and its step
*tau*. Every layout is these facts and nothing else:

* commit (and prefill): data rows of whole blocks on the TRUNK branch; their KV is kept;
* denoise: the open block, revealed positions as data rows at tau 0, open ones as mask rows at tau NEVER;
* paired: data rows for revealed (tau 0) and drafted positions, a mask row for each open one, at its own tau or NEVER;
* branches: one denoise copy of the block per drafted state, each on its own branch;
* causal: data rows at a tau of their own from left to right, and solo rows that predict at the drafted ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

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

    def assume(self, block: Sequence[int], start: int) -> None:
        """A whole block at position `start` that is seen like a committed one, but not kept."""
        self._trunk(block, start, len(block))

    def _trunk(self, tokens: Sequence[int], start: int, block_size: int) -> None:
        count, positions = len(tokens), range(start, start + len(tokens))
        self.token += tokens
        self.position += positions
        self.block += [position // block_size for position in positions]
        self.branch += [TRUNK] * count
        self.kind += [DATA] * count
        self.tau += [0] * count

    def denoise(self, block: Sequence[int], start: int, mask_token_id: int, branch: int = 0) -> None:
        """A copy of the open block at position `start`: every row sees every other; open rows want logits."""
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

    def causal(
        self, block: Sequence[int], start: int, mask_token_id: int, offsets: list[int], tokens: list[int]
    ) -> None:
        """S2D2's verification: the block read from left to right, candidates `tokens` at ascending `offsets` in it."""
        index, filled = start // len(block), list(block)
        for offset, token in zip(offsets, tokens, strict=True):
            filled[offset] = token
        for offset in range(offsets[-1]):  # what lies behind is seen by nobody
            self._add(filled[offset], start + offset, index, 0, DATA, offset)
        for offset in offsets:
            self.wants.append(len(self))
            self._add(mask_token_id, start + offset, index, 0, SOLO, offset)
