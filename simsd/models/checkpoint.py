"""The files of a checkpoint: its settings, and the tensors of its safetensors. Nothing here reads a whole weight."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from simsd.errors import CheckpointError
from simsd.models.config import ModelConfig
from simsd.models.config_file import ConfigFile, read_json
from simsd.models.family import Layout
from simsd.models.files import check_files
from simsd.models.registry import family_of

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""The types in which weights may be stored, and their sizes in bytes. Integers and 8-bit floats mean nothing without
their scales."""
COMPARED_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored tensor: its file, and its shape and type as the header of the file says."""

    path: Path
    shape: tuple[int, ...]
    dtype: str


def load_model_config(directory: Path, name: str = "") -> ModelConfig:
    """Read the shape of a checkpoint's model from its config.json and generation_config.json.

    name: the checkpoint's public name, from which a family takes what the files do not tell; by default the name of the
    directory. `CheckpointError` for an unusable file or setting.
    """
    path = directory / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{directory}: no config.json; a checkpoint directory needs one")
    check_files(directory)
    config, generation = ConfigFile(path), directory / "generation_config.json"
    family = family_of(config.architecture)
    return family.read_config(config, ConfigFile(generation) if generation.is_file() else None, name or directory.name)


def layout_of(config: ModelConfig) -> Layout:
    """Return the tensors that a checkpoint of this shape has."""
    return family_of(config.architecture).layout(config)


def check_weights(directory: Path, layout: Layout) -> dict[str, Stored]:
    """Check that the safetensors have exactly the tensors of the layout, and return where these are stored.

    `CheckpointError` if a tensor is missing, unexpected, of another shape or not of a type in `FLOATS`, or if a copy
    differs from its original. Only headers are read, and the values of copies.
    """
    found, wanted = read_headers(directory), layout.shapes()
    copies = {key: of for key, of in layout.copies.items() if key in found}
    wanted |= {key: wanted[of] for key, of in copies.items()}
    for key in found.keys() - wanted.keys():
        raise CheckpointError(f"{directory}: unexpected weight {key!r}")
    if missing := [key for key in wanted if key not in found]:
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(f"{directory}: weight {missing[0]!r} is missing{more}")
    for key, shape in wanted.items():
        stored = found[key]
        if stored.shape != shape:
            shapes = f"{list(stored.shape)}, the config asks for {list(shape)}"
            raise CheckpointError(f"{stored.path}: {key} has shape {shapes}")
        if stored.dtype not in FLOATS:
            raise CheckpointError(
                f"{stored.path}: {key} is stored as {stored.dtype}; weights are read from {', '.join(FLOATS)} only"
            )
    for key, of in copies.items():
        if not _equal(found, key, of):
            raise CheckpointError(f"{directory}: {key} must repeat {of}, as the config ties them, and differs from it")
    return {key: stored for key, stored in found.items() if key not in copies}


def read_headers(directory: Path) -> dict[str, Stored]:
    """Return all tensors, in the order in which they are stored: of the shards in the index, or of the single file.

    `CheckpointError` if a file is missing or damaged, or if two shards have the same tensor.
    """
    index = directory / INDEX
    names = _shards(index) if index.is_file() else [WEIGHTS]
    found: dict[str, Stored] = {}
    for name in names:
        path = directory / name
        if not path.is_file():
            raise CheckpointError(f"{directory}: {name} is missing; weights are read from safetensors only")
        try:
            with safe_open(path, framework="np") as shard:
                for key in shard.offset_keys():
                    entry = shard.get_slice(key)
                    if key in found:
                        raise CheckpointError(f"{directory}: {key} is in {found[key].path.name} and in {name}")
                    found[key] = Stored(path, tuple(entry.get_shape()), entry.get_dtype())
        except SafetensorError as error:
            raise CheckpointError(f"{path}: not a whole safetensors file: {error}") from error
    return found


def _shards(index: Path) -> list[str]:
    names: Any = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise CheckpointError(f"{index}: has no weight_map from tensors to files")
    if foreign := [name for name in names.values() if Path(name).name != name]:
        raise CheckpointError(f"{index}: weight_map names {foreign[0]!r}, which is no file beside it")
    return sorted(set(names.values()))


def _equal(found: dict[str, Stored], key: str, of: str) -> bool:
    """Whether two tensors have the same values. Some rows are read at a time."""
    import torch

    one, other = (found[name] for name in (key, of))
    with safe_open(one.path, framework="pt") as first, safe_open(other.path, framework="pt") as second:
        for start in range(0, one.shape[0], COMPARED_ROWS):
            rows = slice(start, start + COMPARED_ROWS)
            if not torch.equal(first.get_slice(key)[rows], second.get_slice(of)[rows]):
                return False
    return True
