"""Strict loading of checkpoints: what is accepted, and that every refusal names what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from simsd.errors import CheckpointError
from simsd.models.config import block_size_from_name, load_model_config
from simsd.models.registry import build_model, checkpoint_slices, load_model, save_model, weights_hash
from simsd.models.sdar import SDARForCausalLM
from tests.unit.checkpoints import Shape, random_weights, write_checkpoint

UNTIED, TIED = Shape(layers=1), Shape(layers=1, tied=True)
SHAPES = pytest.mark.parametrize("shape", [UNTIED, TIED], ids=["untied", "tied"])


def edit_config(directory: Path, drop: str = "", **changes: Any) -> None:
    path = directory / "config.json"
    config = json.loads(path.read_text()) | changes
    config.pop(drop, None)
    path.write_text(json.dumps(config))


def edit_weights(directory: Path, drop: str = "", **changes: torch.Tensor) -> None:
    path = directory / "model.safetensors"
    weights = {name: tensor.clone() for name, tensor in load_file(path).items()} | changes  # the file is mapped
    weights.pop(drop, None)
    save_file(weights, path)


def same_weights(model: SDARForCausalLM, shape: Shape, seed: int) -> None:
    """The model holds exactly the checkpoint's tensors, each under its name."""
    views, weights = checkpoint_slices(model, model.config), random_weights(shape, seed)
    assert views.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(views[name], tensor), name


@SHAPES
@pytest.mark.parametrize("shards", [1, 3])
def test_loads_one_file_and_shards(tmp_path: Path, shape: Shape, shards: int) -> None:
    model = load_model(write_checkpoint(tmp_path, shape, seed=5, shards=shards, tokenizer=False))
    same_weights(model, shape, seed=5)
    assert (model.lm_head is None) == shape.tied
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not model.training


def test_packed_matrices_are_stacked_in_order(tmp_path: Path) -> None:
    """q, k, v and gate, up lie one below the other: a swap would load without any error."""
    model = load_model(write_checkpoint(tmp_path, UNTIED, seed=5, tokenizer=False))
    weights = random_weights(UNTIED, 5)
    layer, prefix = model.model.layers[0], "model.layers.0"
    stacked = torch.cat([weights[f"{prefix}.self_attn.{part}_proj.weight"] for part in "qkv"])
    assert torch.equal(layer.self_attn.qkv_proj.weight, stacked)
    stacked = torch.cat([weights[f"{prefix}.mlp.{part}_proj.weight"] for part in ("gate", "up")])
    assert torch.equal(layer.mlp.gate_up_proj.weight, stacked)


def test_tied_checkpoint_may_still_carry_its_head(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, TIED, seed=5, tokenizer=False)
    edit_weights(directory, **{"lm_head.weight": torch.zeros(TIED.vocab_size, TIED.hidden_size)})
    model = load_model(directory)
    same_weights(model, TIED, seed=5)
    hidden = torch.randn(2, TIED.hidden_size, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.logits(hidden), hidden @ random_weights(TIED, 5)["model.embed_tokens.weight"].T)


def test_index_decides_even_beside_a_single_file(tmp_path: Path) -> None:
    """A leftover model.safetensors of other weights is not read where there is an index."""
    write_checkpoint(tmp_path, UNTIED, seed=6, shards=1, tokenizer=False)
    same_weights(load_model(write_checkpoint(tmp_path, UNTIED, seed=5, shards=2, tokenizer=False)), UNTIED, seed=5)


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.k_norm.weight", "lm_head.weight", "model.norm.weight"])
def test_missing_weight_is_named(tmp_path: Path, name: str) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_weights(directory, drop=name)
    with pytest.raises(CheckpointError, match=rf"missing.*{name}") as caught:
        load_model(directory)
    assert str(directory) in str(caught.value)


@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias", "extra"])
def test_extra_weight_is_named(tmp_path: Path, name: str) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_weights(directory, **{name: torch.zeros(2)})
    with pytest.raises(CheckpointError, match=f"unexpected weight '{name}'"):
        load_model(directory)


def test_wrong_shape_names_weight_and_both_shapes(tmp_path: Path) -> None:
    directory, name = write_checkpoint(tmp_path, UNTIED, tokenizer=False), "model.layers.0.self_attn.v_proj.weight"
    edit_weights(directory, **{name: torch.zeros(31, 48)})
    with pytest.raises(CheckpointError, match=rf"{name} has shape \[31, 48\], the config asks for \[32, 48\]"):
        load_model(directory)


def test_a_shape_that_would_broadcast_is_refused(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_weights(directory, **{"model.norm.weight": torch.ones(1)})
    with pytest.raises(CheckpointError, match=r"model.norm.weight has shape \[1\]"):
        load_model(directory)


def test_unknown_architecture_is_named_with_the_known_ones(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, architectures=["LlamaForCausalLM"])
    with pytest.raises(CheckpointError, match=r"'LlamaForCausalLM'; known: .*SDARForCausalLM"):
        load_model(directory)


@pytest.mark.parametrize("architectures", [[], ["SDARForCausalLM", "Other"], None])
def test_architectures_must_name_one(tmp_path: Path, architectures: list[str] | None) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, architectures=architectures)
    with pytest.raises(CheckpointError, match="exactly one class"):
        load_model(directory)


def test_missing_config_is_named(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    (directory / "config.json").unlink()
    with pytest.raises(CheckpointError, match=rf"{tmp_path.name}: no config.json"):
        load_model(directory)


@pytest.mark.parametrize("key", ["vocab_size", "num_key_value_heads", "rms_norm_eps"])
def test_config_that_lacks_a_key_names_it(tmp_path: Path, key: str) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, drop=key)
    with pytest.raises(CheckpointError, match=f"config.json: lacks {key}"):
        load_model(directory)


def test_scaled_rope_is_refused_not_ignored(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, rope_scaling={"rope_type": "yarn", "factor": 4.0})
    with pytest.raises(CheckpointError, match=r"yarn.* not supported"):
        load_model(directory)


@pytest.mark.parametrize(("shards", "file"), [(1, "model.safetensors"), (3, "model-00002-of-00003.safetensors")])
def test_missing_file_is_named(tmp_path: Path, shards: int, file: str) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, shards=shards, tokenizer=False)
    (directory / file).unlink()
    with pytest.raises(CheckpointError, match=f"{file} is missing"):
        load_model(directory)


@SHAPES
def test_save_and_load_round_trip(tmp_path: Path, shape: Shape) -> None:
    first = load_model(write_checkpoint(tmp_path / "a", shape, seed=5, tokenizer=False))
    second = write_checkpoint(tmp_path / "b", shape, seed=6, tokenizer=False)
    save_model(first, second / "model.safetensors", torch.float32)
    assert load_file(second / "model.safetensors").keys() == random_weights(shape, 5).keys()
    same_weights(load_model(second), shape, seed=5)


def test_save_rounds_to_the_dtype_asked_for(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, seed=5, tokenizer=False)
    save_model(load_model(directory), directory / "model.safetensors", torch.bfloat16)
    for name, tensor in load_file(directory / "model.safetensors").items():
        assert torch.equal(tensor, random_weights(UNTIED, 5)[name].to(torch.bfloat16)), name


@pytest.mark.parametrize("shape", [UNTIED, TIED, Shape(kv_heads=4, layers=3)])
def test_parameters_counts_every_weight_once(tmp_path: Path, shape: Shape) -> None:
    expected = sum(tensor.numel() for tensor in random_weights(shape, 0).values())
    config = load_model_config(write_checkpoint(tmp_path, shape, tokenizer=False))
    assert config.parameters == expected
    assert sum(parameter.numel() for parameter in build_model(config).parameters()) == expected


@pytest.mark.parametrize(
    ("name", "block_size"),
    [
        ("JetLM/SDAR-8B-Chat", 4),
        ("JetLM/SDAR-1.7B-Chat", 4),
        ("JetLM/SDAR-8B-Chat-b8", 8),
        ("JetLM/SDAR-8B-Chat-b16", 16),
        ("JetLM/SDAR-1.7B-Chat-b64", 64),
        ("SDAR-4B-Chat-b32", 32),
        ("Qwen/Qwen3-8B", None),
        ("someone/model-b8", None),
        ("", None),
    ],
)
def test_block_size_from_the_name(name: str, block_size: int | None) -> None:
    assert block_size_from_name(name) == block_size


@pytest.mark.parametrize(
    ("name", "written", "expected"),
    [
        ("JetLM/SDAR-8B-Chat-b16", (None, None), (16, 151669)),
        ("JetLM/SDAR-8B-Chat", (None, None), (4, 151669)),
        ("JetLM/SDAR-8B-Chat-b16", (8, 5), (8, 5)),  # the file is believed before the name
        ("JetLM/SDAR-8B-Chat-b16", (None, 0), (16, 0)),  # 0 is an id, not "none"
        ("other/model", (None, None), (None, None)),
        ("other/model", (4, 3), (4, 3)),
    ],
)
def test_name_fills_in_what_the_file_lacks(
    tmp_path: Path, name: str, written: tuple[int | None, int | None], expected: tuple[int | None, int | None]
) -> None:
    write_checkpoint(tmp_path, UNTIED, block_size=written[0], mask_token_id=written[1], tokenizer=False)
    config = load_model_config(tmp_path, name)
    assert (config.block_size, config.mask_token_id) == expected


def test_directory_name_serves_as_the_name(tmp_path: Path) -> None:
    directory = tmp_path / "SDAR-1.7B-Chat-b8"
    write_checkpoint(directory, UNTIED, block_size=None, mask_token_id=None, tokenizer=False)
    config = load_model_config(directory)
    assert (config.block_size, config.mask_token_id) == (8, 151669)


@pytest.mark.parametrize(
    ("generation", "in_config", "expected"),
    [
        ({"eos_token_id": [151645, 151643]}, 7, (151645, 151643)),
        ({"eos_token_id": 9}, 7, (9,)),
        ({"temperature": 0.6}, 7, (7,)),
        (None, [7, 8], (7, 8)),
        (None, None, ()),
    ],
)
def test_eos_ids(tmp_path: Path, generation: dict[str, Any] | None, in_config: Any, expected: tuple[int, ...]) -> None:
    """generation_config.json first, every id of it; config.json where that says nothing."""
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, eos_token_id=in_config)
    if generation is not None:
        (directory / "generation_config.json").write_text(json.dumps(generation))
    assert load_model_config(directory).eos_token_ids == expected


@pytest.mark.parametrize(
    ("changes", "theta"),
    [({"rope_theta": 1000000}, 1e6), ({"rope_theta": None, "rope_parameters": {"rope_theta": 5e5}}, 5e5)],
)
def test_rope_theta_in_the_old_and_the_new_place(tmp_path: Path, changes: dict[str, Any], theta: float) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, **changes)
    assert load_model_config(directory).rope_theta == theta


def test_head_dim_defaults_to_its_share_of_hidden(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, drop="head_dim")
    assert load_model_config(directory).head_dim == UNTIED.hidden_size // UNTIED.heads


def test_other_weights_of_the_same_name_have_another_hash(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, seed=5, tokenizer=False)
    first, again = weights_hash(load_model(directory)), weights_hash(load_model(directory))
    write_checkpoint(tmp_path, UNTIED, seed=6, tokenizer=False)
    assert first == again != weights_hash(load_model(directory))
    edited = load_model(directory)
    edited.model.norm.weight[0] += 1e-3
    assert weights_hash(edited) != weights_hash(load_model(directory))
