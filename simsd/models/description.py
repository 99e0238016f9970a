"""The description and the checks of a model that need no weights.

`describe` is the only description of a checkpoint under given settings. A worker adds what needs the weights. `simsd
models`, `simsd serve` and `build_app` check the models before anything starts: the description, the weights' files, and
whether the pair fits.
"""

import logging
from functools import cache
from pathlib import Path

from simsd.config import WorkerConfig
from simsd.errors import CheckpointError, ConfigError
from simsd.messages.pair import check_pair
from simsd.messages.worker import WorkerInfo
from simsd.models.checkpoint import check_weights, layout_of, load_model_config
from simsd.models.config import ModelConfig
from simsd.models.files import resolve_here, resolve_model
from simsd.models.registry import family_of
from simsd.tokens.tokenizer import Tokenizer

MIN_PAGE_TOKENS = 16

logger = logging.getLogger(__name__)


def check_startup(draft_config: WorkerConfig | None, target_config: WorkerConfig) -> None:
    """Raise what starting these workers on this machine would raise, without reading a weight, in about a second.

    It reads config.json, the tokenizer's files and the headers of the safetensors, and fetches a model of the hub that
    is not here. Raises `CheckpointError`, `ConfigError` or `PairMismatchError`.
    """
    infos = []
    for config in _both(draft_config, target_config):
        infos.append(_check_files_of(config, resolve_model(config.model, config.role)))
        if config.device not in ("auto", "cpu") or config.dtype == "float16":
            dtype_on(config, available_device(config))
    if len(infos) == 2:
        check_pair(*infos)


def check_where_present(draft_config: WorkerConfig | None, target_config: WorkerConfig) -> None:
    """Check the models whose files this machine has, as `check_startup` does, but fetch nothing and check no device.

    This is for a machine that does not run the models, such as the head of a cluster. Files that are missing here may
    be on the machines that run them, so such a model is not checked, and a line in the log says so.
    """
    infos = []
    for config in _both(draft_config, target_config):
        directory = resolve_here(config.model, config.role)
        if directory is None:
            logger.info("%s %s: its files are not on this machine; its engine checks them", config.role, config.model)
        else:
            infos.append(_check_files_of(config, directory))
    if len(infos) == 2:
        check_pair(*infos)


def describe(config: WorkerConfig, directory: Path | None = None) -> WorkerInfo:
    """Describe the worker of these settings, except for what needs the weights or the device.

    directory: the checkpoint's directory, if the caller has resolved its name. In the result `weights_hash` is empty,
    and device and dtype are those of the settings. `CheckpointError` if the files are unusable, and `ConfigError` if
    the settings contradict them or each other.
    """
    directory = directory or resolve_model(config.model, config.role)
    shape = load_model_config(directory, config.model)
    shape.share(config.tensor_parallel)  # Raises `ConfigError` if it cannot be shared.
    dtype_on(config, config.device)  # Raises `ConfigError` if the device cannot compute in the dtype.
    block_size, mask_token_id = _block_and_mask(config, shape)
    tokenizer = Tokenizer.load(directory, mask_token_id)
    if tokenizer.vocab_size > shape.vocab_size:
        raise CheckpointError(
            f"{directory}: the tokenizer has {tokenizer.vocab_size} ids, the model's vocabulary {shape.vocab_size}"
        )
    page_size = config.page_size or -(-MIN_PAGE_TOKENS // block_size) * block_size
    if page_size % block_size:
        raise ConfigError(f"page_size {page_size} is not a whole number of blocks of {block_size}")
    longest = min(config.max_model_len or shape.max_position_embeddings, shape.max_position_embeddings)
    return WorkerInfo(
        role=config.role,
        model=config.model,
        weights_hash="",
        architecture=shape.architecture,
        vocab_size=shape.vocab_size,
        tokenizer_hash=tokenizer.content_hash,
        mask_token_id=mask_token_id,
        block_size=block_size,
        eos_token_ids=_ends(config, shape, tokenizer, mask_token_id),
        max_model_len=longest // block_size * block_size,
        page_size=page_size,
        pages=config.kv_tokens // page_size,
        max_rows=max(config.max_rows, block_size * (block_size + 2)),  # All branches of a block must fit.
        device=config.device,
        dtype=config.dtype,
    )


def available_device(config: WorkerConfig) -> str:
    """Return the device that the setting means on this machine. `ConfigError` if the device is not available."""
    import torch

    if config.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=config.device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"{config.role}: device {config.device!r} is not available here: {reason}") from error
    return config.device


def dtype_on(config: WorkerConfig, device: str) -> str:
    """Return the name of torch's dtype that the setting means on a device. `ConfigError` if the device lacks it."""
    if config.dtype == "auto":
        return "float32" if device == "cpu" else "bfloat16"
    if config.dtype == "float16" and device == "cpu":
        raise ConfigError("dtype float16 is not available on the CPU; use float32 or bfloat16")
    return config.dtype


def _both(draft: WorkerConfig | None, target: WorkerConfig) -> list[WorkerConfig]:
    return [target] if draft is None else [draft, target]


def _check_files_of(config: WorkerConfig, directory: Path) -> WorkerInfo:
    info = describe(config, directory)
    check_weights(directory, layout_of(load_model_config(directory, config.model)))
    return info


def _block_and_mask(config: WorkerConfig, shape: ModelConfig) -> tuple[int, int]:
    """Return block size and mask id from the settings, else from the files, else from the checkpoint's name.

    If only the name tells them, a warning says so.
    """
    if named := [f"{name} {getattr(shape, name)}" for name in shape.named if getattr(config, name) is None]:
        _say_once(f"{config.model}: only the checkpoint's name tells {' and '.join(named)}")
    block_size = shape.block_size if config.block_size is None else config.block_size
    mask_token_id = shape.mask_token_id if config.mask_token_id is None else config.mask_token_id
    if block_size is None or mask_token_id is None:
        raise ConfigError(f"{config.model}: neither arguments, config nor name tell block_size and mask_token_id")
    if not mask_token_id < shape.vocab_size:
        raise ConfigError(
            f"{config.model}: mask_token_id {mask_token_id} is not in the vocabulary of {shape.vocab_size}"
        )
    return block_size, mask_token_id


def _ends(config: WorkerConfig, shape: ModelConfig, tokenizer: Tokenizer, mask_token_id: int) -> tuple[int, ...]:
    """Return the ids that end an answer: those of the files, and end-of-turn tokens even if the files omit them."""
    turns = map(tokenizer.token_id, family_of(shape.architecture).end_of_turn)
    ends = {*shape.eos_token_ids, *(turn for turn in turns if turn is not None)}
    if mask_token_id in ends:
        raise ConfigError(f"{config.model}: mask_token_id {mask_token_id} is an end-of-sequence token, too")
    return tuple(sorted(ends))


@cache
def _say_once(line: str) -> None:
    """Log a warning once, because a model is described several times before a server is up."""
    logger.warning(line)
