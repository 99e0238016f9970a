"""Architectures by name, and strict loading and saving of their weights.

A new family is one module file and one row of ARCHITECTURES.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from simsd.errors import CheckpointError
from simsd.models.config import ModelConfig, load_model_config, read_json
from simsd.models.layers import rope_table
from simsd.models.sdar import SDARForCausalLM

ARCHITECTURES: dict[str, type[SDARForCausalLM]] = {"SDARForCausalLM": SDARForCausalLM}

PACKED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""Our parameter -> the checkpoint's, stacked along dimension 0."""
HASHED_VALUES = 64
"""Of each tensor, about; more than a hash of so many weights needs."""


def build_model(config: ModelConfig) -> SDARForCausalLM:
    """A model with fresh weights; `CheckpointError` if the architecture is not in the registry."""
    family = ARCHITECTURES.get(config.architecture)
    if family is None:
        raise CheckpointError(
            f"unknown architecture {config.architecture!r}; known: {', '.join(sorted(ARCHITECTURES))}"
        )
    return family(config)


def checkpoint_slices(model: nn.Module, config: ModelConfig) -> dict[str, Tensor]:
    """The checkpoint's tensor names -> views into the model's parameters, packed matrices taken apart."""
    heads, kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    sizes = {
        "qkv_proj": (heads * head_dim, kv_heads * head_dim, kv_heads * head_dim),
        "gate_up_proj": (config.intermediate_size, config.intermediate_size),
    }
    views: dict[str, Tensor] = {}
    for name, parameter in model.state_dict().items():
        packed = next((key for key in PACKED if f".{key}." in name), None)
        if packed is None:
            views[name] = parameter
            continue
        for part, view in zip(PACKED[packed], parameter.split(sizes[packed]), strict=True):
            views[name.replace(packed, part)] = view
    return views


def _tensors(directory: Path) -> Iterator[tuple[str, Tensor]]:
    index = directory / "model.safetensors.index.json"
    sharded = index.is_file()
    names = sorted(set(read_json(index)["weight_map"].values())) if sharded else ["model.safetensors"]
    for name in names:
        path = directory / name
        if not path.is_file():
            raise CheckpointError(f"{directory}: {name} is missing; weights are read from safetensors only")
        try:
            with safe_open(path, framework="pt") as shard:
                for key in shard.keys():  # noqa: SIM118 (not a mapping)
                    yield key, shard.get_tensor(key)
        except SafetensorError as error:
            raise CheckpointError(f"{path}: cannot be read: {error}") from error


SPLIT = {"q_proj": 0, "k_proj": 0, "v_proj": 0, "gate_proj": 0, "up_proj": 0, "o_proj": 1, "down_proj": 1}
"""Projections that ranks share, with the dimension along which each has its part; all else is on every rank."""


def _part(key: str, tensor: Tensor, rank: int, ranks: int) -> Tensor:
    dimension = next((d for name, d in SPLIT.items() if f".{name}." in key), None)
    if dimension is None or tensor.shape[dimension] % ranks:
        return tensor
    return tensor.chunk(ranks, dim=dimension)[rank]


def load_model(
    directory: Path, name: str = "", dtype: torch.dtype = torch.float32, rank: int = 0, ranks: int = 1
) -> SDARForCausalLM:
    """Strictly load a checkpoint directory (one safetensors file or shards) on the CPU in `dtype`.

    Every tensor must be there with the right shape and none may be left over, else `CheckpointError`. With several
    `ranks`, the part of one of them.
    """
    config = load_model_config(directory, name).share(ranks)
    model = build_model(config).to(dtype)
    views = checkpoint_slices(model, config)
    seen: set[str] = set()
    # Nothing to see for two seconds; then a bar, where someone can see it.
    for key, tensor in tqdm(_tensors(directory), total=len(views), unit="tensor", delay=2, disable=None):
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        view, tensor = views.get(key), _part(key, tensor, rank, ranks)
        if view is None:
            raise CheckpointError(f"{directory}: unexpected weight {key!r}")
        if view.shape != tensor.shape:
            raise CheckpointError(
                f"{directory}: {key} has shape {list(tensor.shape)}, the config asks for {list(view.shape)}"
            )
        view.copy_(tensor)
        seen.add(key)
    missing = sorted(views.keys() - seen)
    if missing:
        raise CheckpointError(f"{directory}: {len(missing)} weights are missing, the first is {missing[0]!r}")
    # Built anew: the cast to `dtype` has rounded it, and positions need all of float32.
    model.model.rope = rope_table(config.max_position_embeddings, config.head_dim, config.rope_theta)
    return model.eval().requires_grad_(False)


def weights_hash(model: SDARForCausalLM) -> str:
    """Tells two sets of weights apart that have the same name and shapes; of some values of each tensor."""
    digest = hashlib.sha256()
    for tensor in checkpoint_slices(model, model.config).values():
        values = tensor.flatten()[:: max(1, tensor.numel() // HASHED_VALUES)]
        digest.update(values.float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def save_model(model: SDARForCausalLM, path: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write model.safetensors under the checkpoint's own names."""
    tensors = {k: v.detach().to(dtype).contiguous().clone() for k, v in checkpoint_slices(model, model.config).items()}
    save_file(tensors, path, metadata={"format": "pt"})
