"""The `Family`, which holds all that is particular to one kind of checkpoint.

This module and the families import no torch, so that a checkpoint can be described without it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simsd.models.config import ModelConfig
from simsd.models.config_file import ConfigFile

if TYPE_CHECKING:  # This module imports torch.
    from simsd.models.model import BlockDiffusionModel


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of a checkpoint, or some of its rows, and the parameter of the model that takes it.

    key: the tensor's name in the checkpoint.
    shape: the shape of the piece in the whole model.
    parameter: the name of the model's parameter. Pieces of the same parameter are stacked along dimension 0, in the
    order of the layout.
    start: the first row of the piece, if several pieces share a tensor. The layout has them in the order of their rows.
    shared: the dimension of which each rank of a tensor-parallel model has an equal part; None if every rank has all.
    """

    key: str
    shape: tuple[int, ...]
    parameter: str
    start: int = 0
    shared: int | None = None

    def part(self, rank: int, ranks: int) -> tuple[slice, ...]:
        """Return the rank's part of this piece in the checkpoint's tensor, as a slice for each dimension."""
        bounds = [(0, size) for size in self.shape]
        if self.shared is not None:
            size = self.shape[self.shared] // ranks
            bounds[self.shared] = (rank * size, (rank + 1) * size)
        bounds[0] = (self.start + bounds[0][0], self.start + bounds[0][1])
        return tuple(slice(*bound) for bound in bounds)


@dataclass(frozen=True, slots=True)
class Layout:
    """Exactly the tensors that a checkpoint has, and the parameters that take them.

    copies: tensors that a checkpoint may have in addition, such as a tied head, each with the key of the tensor whose
    values it must repeat.
    """

    pieces: tuple[Piece, ...]
    copies: Mapping[str, str] = field(default_factory=dict)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor in the checkpoint, by its key."""
        shapes: dict[str, tuple[int, ...]] = {}
        for piece in self.pieces:
            before = shapes.get(piece.key, (0,))
            shapes[piece.key] = (max(before[0], piece.start + piece.shape[0]), *piece.shape[1:])
        return shapes


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of checkpoint, which is found by its architecture's name (simsd/models/registry.py).

    read_config: returns the model's shape from config.json, generation_config.json (None if there is none) and the
    checkpoint's public name. It raises `CheckpointError` for a setting that is missing, that has a value which is not
    allowed, or that would change the result and is not supported.
    layout: returns which parameters take the tensors of a checkpoint of this shape.
    network: returns the model for the shape of one rank. It may be called on torch's meta device, so parameters need no
    values, and `make_tables` is called later.
    end_of_turn: the strings that end a turn of the chat template. Those that the vocabulary has end an answer.
    """

    read_config: Callable[[ConfigFile, ConfigFile | None, str], ModelConfig]
    layout: Callable[[ModelConfig], Layout]
    network: Callable[[ModelConfig], "BlockDiffusionModel"]
    end_of_turn: tuple[str, ...] = ()
