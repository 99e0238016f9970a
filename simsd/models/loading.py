"""Loading the weights of a checkpoint into a model, and saving them."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from math import prod
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from simsd.errors import InternalError
from simsd.models.checkpoint import FLOATS, Stored, check_weights, layout_of, load_model_config
from simsd.models.config import ModelConfig
from simsd.models.family import Layout, Piece
from simsd.models.model import BlockDiffusionModel
from simsd.models.registry import family_of

HASHED_VALUES = 64
"""About this number of values of each parameter goes into the hash of the weights."""


def build_model(config: ModelConfig) -> BlockDiffusionModel:
    """Make a float32 model on the CPU, to be trained. Its parameters have arbitrary values.

    `CheckpointError` if the architecture is not in the registry.
    """
    model = family_of(config.architecture).network(config)
    model.make_tables()
    return model


def empty_model(config: ModelConfig, dtype: torch.dtype, device: str) -> BlockDiffusionModel:
    """Make a model for inference whose parameters are allocated on the device but not initialised.

    The caller must fill them, and call `make_tables` afterwards.
    """
    with torch.device("meta"):
        model = family_of(config.architecture).network(config)
    # `Module.to_empty` would do the same, but it imports large parts of torch.
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            empty = torch.empty(parameter.shape, dtype=dtype, device=device)
            module.register_parameter(name, nn.Parameter(empty, requires_grad=False))
    return model.eval()


def load_model(
    directory: Path,
    name: str = "",
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    rank: int = 0,
    ranks: int = 1,
) -> BlockDiffusionModel:
    """Load a checkpoint (one safetensors file or shards) in `dtype` on `device`.

    Every tensor must be present with the right shape and none may be left over, else `CheckpointError`. With several
    `ranks`, only the part of rank `rank` is read. Each tensor is read once, and converted and placed at once, so beside
    the weights the host holds about one tensor of the checkpoint at a time.
    """
    config = load_model_config(directory, name)
    part, layout = config.share(ranks), layout_of(config)
    stored = check_weights(directory, layout)
    model = empty_model(part, dtype, device)
    targets = dict(zip(layout.pieces, _targets(model, layout, ranks), strict=True))
    if sum(target.numel() for target in targets.values()) != sum(p.numel() for p in model.parameters()):
        raise InternalError(f"the layout of {config.architecture} does not fill every parameter")
    # After two seconds a progress bar appears, if the output is a terminal.
    tensors = _read(stored, layout.pieces, rank, ranks)
    for piece, tensor in tqdm(tensors, total=len(targets), unit="tensor", delay=2, disable=None):
        place(tensor, targets[piece])
    model.make_tables()
    return model


def place(tensor: Tensor, target: Tensor) -> None:
    """Copy a tensor of the host to `target`. It is moved to the device first and converted there."""
    target.copy_(tensor.to(target.device))


def checkpoint_tensors(model: BlockDiffusionModel) -> dict[str, Tensor]:
    """Return a whole model's weights as the tensors of a checkpoint, by key.

    They are views of the parameters, except for tensors that are made of several pieces.
    """
    layout = layout_of(model.config)
    parts: dict[str, list[Tensor]] = {}
    for piece, target in zip(layout.pieces, _targets(model, layout, ranks=1), strict=True):
        parts.setdefault(piece.key, []).append(target)
    return {key: tensors[0] if len(tensors) == 1 else torch.cat(tensors) for key, tensors in parts.items()}


def save_model(model: BlockDiffusionModel, path: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a model's weights to a safetensors file, under the names that its checkpoints use."""
    tensors = {key: t.detach().to(dtype).contiguous().clone() for key, t in checkpoint_tensors(model).items()}
    save_file(tensors, path, metadata={"format": "pt"})


def weights_hash(model: BlockDiffusionModel) -> str:
    """Return a hash of some values of each parameter. It tells apart weights with the same name and shapes."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        values = parameter.detach().flatten()[:: max(1, parameter.numel() // HASHED_VALUES)]
        digest.update(values.float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _targets(model: BlockDiffusionModel, layout: Layout, ranks: int) -> Iterator[Tensor]:
    """Yield, for each piece, the part of a parameter that takes it, in a model that is one of `ranks`."""
    parameters = dict(model.named_parameters())
    filled = dict.fromkeys(parameters, 0)
    for piece in layout.pieces:
        shape = [size // ranks if dim == piece.shared else size for dim, size in enumerate(piece.shape)]
        first = filled[piece.parameter]
        filled[piece.parameter] = first + shape[0]
        # A stack of matrices [E, out, in] takes its pieces like one matrix [E * out, in].
        yield parameters[piece.parameter].flatten(0, -len(shape))[first : first + shape[0]].view(shape)


def _read(stored: dict[str, Stored], pieces: Iterable[Piece], rank: int, ranks: int) -> Iterator[tuple[Piece, Tensor]]:
    """Yield the rank's part of each piece, file by file, in the order in which the tensors are stored.

    Files are mapped, and what has been read of a file counts as memory of this process while the file is open. So a
    file is opened again before more has been read of it than the size of the largest tensor.
    """
    largest = max(_bytes(each) for each in stored.values())
    wanted: dict[str, list[Piece]] = {}
    for piece in pieces:
        wanted.setdefault(piece.key, []).append(piece)
    for path, of_file in groupby(stored.items(), key=lambda item: item[1].path):
        keys = [key for key, _ in of_file]
        while keys:
            read = 0
            with safe_open(path, framework="pt") as shard:
                while keys and (not read or read + _bytes(stored[keys[0]]) <= largest):
                    key = keys.pop(0)
                    read += _bytes(stored[key])
                    for piece in wanted[key]:
                        yield piece, shard.get_slice(key)[piece.part(rank, ranks)]


def _bytes(stored: Stored) -> int:
    return prod(stored.shape) * FLOATS[stored.dtype]
