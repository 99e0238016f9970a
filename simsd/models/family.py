"""What is particular to a kind of checkpoint, in one place: a `Family`.

Importing this module and the families imports no torch: a checkpoint can be described without it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simsd.models.config import ModelConfig
from simsd.models.config_file import ConfigFile

if TYPE_CHECKING:  # it comes with torch
    from simsd.models.model import BlockDiffusionModel


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of a checkpoint, or some of its rows, and the parameter of the model that takes it.

    key: the tensor's name in the checkpoint. shape: of the piece, in the whole model. parameter: its name in the model;
    pieces of the same parameter lie one below the other, along dimension 0, in the order of the layout.
    start: the piece's first row, where several pieces share a tensor; the layout has them in the order of their rows.
    shared: the dimension of which each rank of a
    tensor-parallel model has an equal part; None if every rank has all of it.
    """

    key: str
    shape: tuple[int, ...]
    parameter: str
    start: int = 0
    shared: int | None = None

    def part(self, rank: int, ranks: int) -> tuple[slice, ...]:
        """Where in the checkpoint's tensor the rank's part of this piece lies, a slice for each dimension."""
        bounds = [(0, size) for size in self.shape]
        if self.shared is not None:
            size = self.shape[self.shared] // ranks
            bounds[self.shared] = (rank * size, (rank + 1) * size)
        bounds[0] = (self.start + bounds[0][0], self.start + bounds[0][1])
        return tuple(slice(*bound) for bound in bounds)


@dataclass(frozen=True, slots=True)
class Layout:
    """The tensors that a checkpoint has, no more and no less, and where they go.

    copies: tensors that a checkpoint may repeat under another name, such as a tied head; name -> the key whose values
    it must have.
    """

    pieces: tuple[Piece, ...]
    copies: Mapping[str, str] = field(default_factory=dict)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Key -> shape of the whole tensor in the checkpoint."""
        shapes: dict[str, tuple[int, ...]] = {}
        for piece in self.pieces:
            before = shapes.get(piece.key, (0,))
            shapes[piece.key] = (max(before[0], piece.start + piece.shape[0]), *piece.shape[1:])
        return shapes


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of checkpoint, found by its architecture's name (simsd/models/registry.py).

    read_config: from config.json, generation_config.json (None if there is none) and the checkpoint's public name to
    the model's shape. `CheckpointError` for whatever is missing, is no value of its key, or would change the result
    and is not supported.
    layout: where the tensors of a checkpoint of this shape go.
    network: the model, for the shape of one rank. Its parameters need no values and its tables are not made yet: it is
    built on torch's meta device.
    end_of_turn: the strings that end a turn of the chat template. Those that the vocabulary has end an answer.
    """

    read_config: Callable[[ConfigFile, ConfigFile | None, str], ModelConfig]
    layout: Callable[[ModelConfig], Layout]
    network: Callable[[ModelConfig], "BlockDiffusionModel"]
    end_of_turn: tuple[str, ...] = ()
