"""What can be found wrong before any model is loaded: files, settings, and whether two models make a pair."""

import json
import math
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from simsd.config import WorkerConfig
from simsd.errors import CheckpointError, ConfigError
from simsd.messages.pair import check_pair
from simsd.messages.worker import WorkerInfo
from simsd.models.config import ModelConfig, load_model_config
from simsd.models.files import resolve_model
from simsd.tokens.tokenizer import Tokenizer

META_FROM_PARAMETERS = 50_000_000


def check_startup(draft_config: WorkerConfig | None, target_config: WorkerConfig) -> None:
    """Raise what starting these workers would raise, in about a second and without reading a weight.

    Reads config.json, tokenizer files and the headers of the safetensors. `CheckpointError`, `ConfigError` or
    `PairMismatchError`; each names the model, or both, and what to do.
    """
    infos = [_check_worker(config) for config in (target_config, draft_config) if config is not None]
    if len(infos) == 2:
        check_pair(infos[1], infos[0])


def _check_worker(config: WorkerConfig) -> WorkerInfo:
    directory = resolve_model(config.model, config.role)
    shape = load_model_config(directory, config.model)
    shape.share(config.tensor_parallel)  # or `ConfigError`
    check_weights(directory, shape)
    check_device(config)
    return describe(config, directory, shape)


def describe(config: WorkerConfig, directory: Path, shape: ModelConfig) -> WorkerInfo:
    """What the worker of this config would say of itself; device and dtype as asked for, not as found.

    `ConfigError` where settings contradict the checkpoint or each other.
    """
    tokenizer = Tokenizer.load(directory, config.mask_token_id)
    block_size = config.block_size or shape.block_size
    mask_token_id = shape.mask_token_id if config.mask_token_id is None else config.mask_token_id
    if block_size is None or mask_token_id is None:
        raise ConfigError(f"{config.model}: neither arguments, config nor name tell block_size and mask_token_id")
    if not mask_token_id < shape.vocab_size:
        raise ConfigError(
            f"{config.model}: mask_token_id {mask_token_id} is not in the vocabulary of {shape.vocab_size}"
        )
    if tokenizer.vocab_size > shape.vocab_size:
        raise CheckpointError(
            f"{directory}: the tokenizer has {tokenizer.vocab_size} ids, the model's vocabulary {shape.vocab_size}"
        )
    page_size = config.page_size or math.ceil(16 / block_size) * block_size
    if page_size % block_size:
        raise ConfigError(f"page_size {page_size} is not a whole number of blocks of {block_size}")
    return WorkerInfo(
        role=config.role,
        model=config.model,
        weights_hash="",
        architecture=shape.architecture,
        vocab_size=shape.vocab_size,
        tokenizer_hash=tokenizer.content_hash,
        mask_token_id=mask_token_id,
        block_size=block_size,
        eos_token_ids=shape.eos_token_ids,
        max_model_len=min(config.max_model_len or shape.max_position_embeddings, shape.max_position_embeddings),
        page_size=page_size,
        pages=config.kv_tokens // page_size,
        max_rows=config.max_rows,
        device=config.device,
        dtype=config.dtype,
    )


def check_device(config: WorkerConfig) -> None:
    """`ConfigError` if the device is not there, or cannot compute in the dtype."""
    if config.dtype == "float16" and config.device == "cpu":
        raise ConfigError("dtype float16 is not available on the CPU; use float32 or bfloat16")
    if config.device in ("auto", "cpu"):
        return
    import torch

    try:
        torch.empty(0, device=config.device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"{config.role}: device {config.device!r} is not available here: {reason}") from error


def check_weights(directory: Path, shape: ModelConfig) -> None:
    """`CheckpointError` unless the files hold exactly the weights that the architecture has, in its shapes."""
    import torch

    from simsd.models.registry import build_model, checkpoint_slices

    # Without memory where that matters; torch's first "meta" tensor costs two seconds of imports where it does not.
    with torch.device("meta" if shape.parameters > META_FROM_PARAMETERS else "cpu"):
        wanted = {name: list(view.shape) for name, view in checkpoint_slices(build_model(shape), shape).items()}
    found: dict[str, list[int]] = {}
    for path in _weight_files(directory):
        found |= _header(path)
    if shape.tie_word_embeddings:
        found.pop("lm_head.weight", None)
    for name in found.keys() - wanted.keys():
        raise CheckpointError(f"{directory}: unexpected weight {name!r}")
    for name in wanted.keys() - found.keys():
        raise CheckpointError(f"{directory}: weight {name!r} is missing")
    for name, size in wanted.items():
        if found[name] != size:
            raise CheckpointError(f"{directory}: {name} has shape {found[name]}, the config asks for {size}")


def _weight_files(directory: Path) -> list[Path]:
    """The checkpoint's safetensors: the shards of its index, or the one file."""
    index = directory / "model.safetensors.index.json"
    names = set(json.loads(index.read_text())["weight_map"].values()) if index.is_file() else {"model.safetensors"}
    for name in sorted(names):
        if not (directory / name).is_file():
            raise CheckpointError(f"{directory}: {name} is missing; weights are read from safetensors only")
    return [directory / name for name in sorted(names)]


def _header(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, framework="np") as shard:
            return {key: shard.get_slice(key).get_shape() for key in shard.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not a whole safetensors file: {error}") from error
