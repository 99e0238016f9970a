"""Strict loading of checkpoints: what is accepted, and that every refusal names what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from simsd.errors import CheckpointError
from simsd.models import loading
from simsd.models.checkpoint import load_model_config
from simsd.models.loading import build_model, checkpoint_tensors, load_model, save_model, weights_hash
from simsd.models.model import BlockDiffusionModel
from simsd_bench.measure import loading as measured
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


def same_weights(model: BlockDiffusionModel, shape: Shape, seed: int) -> None:
    """The model holds exactly the checkpoint's tensors, each under its name."""
    views, weights = checkpoint_tensors(model), random_weights(shape, seed)
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


def test_a_tied_checkpoint_may_repeat_its_head_but_not_change_it(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, TIED, seed=5, tokenizer=False)
    head = random_weights(TIED, 5)["model.embed_tokens.weight"].clone()
    edit_weights(directory, **{"lm_head.weight": head})
    model = load_model(directory)
    same_weights(model, TIED, seed=5)
    hidden = torch.randn(2, TIED.hidden_size, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.logits(hidden), hidden @ head.T)
    head[-1, -1] += 1
    edit_weights(directory, **{"lm_head.weight": head})
    with pytest.raises(CheckpointError, match=r"lm_head.weight must repeat model.embed_tokens.weight, .* differs"):
        load_model(directory)


def test_index_decides_even_beside_a_single_file(tmp_path: Path) -> None:
    """A leftover model.safetensors of other weights is not read where there is an index."""
    write_checkpoint(tmp_path, UNTIED, seed=6, shards=1, tokenizer=False)
    same_weights(load_model(write_checkpoint(tmp_path, UNTIED, seed=5, shards=2, tokenizer=False)), UNTIED, seed=5)


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.k_norm.weight", "lm_head.weight", "model.norm.weight"])
def test_missing_weight_is_named(tmp_path: Path, name: str) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_weights(directory, drop=name)
    with pytest.raises(CheckpointError, match=rf"weight '{name}' is missing") as caught:
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


def test_other_weights_of_the_same_name_have_another_hash(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, seed=5, tokenizer=False)
    first, again = weights_hash(load_model(directory)), weights_hash(load_model(directory))
    write_checkpoint(tmp_path, UNTIED, seed=6, tokenizer=False)
    assert first == again != weights_hash(load_model(directory))
    edited = load_model(directory)
    edited.model.norm.weight[0] += 1e-3
    assert weights_hash(edited) != weights_hash(load_model(directory))


def test_integers_are_no_weights(tmp_path: Path) -> None:
    """They would need their scales; cast to floats they would load in silence and answer garbage."""
    name = "model.layers.0.mlp.up_proj.weight"
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_weights(directory, **{name: torch.ones(UNTIED.intermediate_size, UNTIED.hidden_size, dtype=torch.int8)})
    with pytest.raises(CheckpointError, match=rf"model.safetensors: {name} is stored as I8; weights are read from F64"):
        load_model(directory)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_floats_of_any_size_are_converted(tmp_path: Path, dtype: torch.dtype) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, seed=5, tokenizer=False)
    edit_weights(directory, **{name: tensor.to(dtype) for name, tensor in random_weights(UNTIED, 5).items()})
    model = load_model(directory)
    for name, tensor in random_weights(UNTIED, 5).items():
        assert torch.equal(checkpoint_tensors(model)[name], tensor.to(dtype).float()), name


@pytest.mark.parametrize(
    "content",
    [{}, {"weight_map": None}, {"weight_map": {}}, {"weight_map": ["model.safetensors"]}, {"weight_map": {"a": 1}}],
)
def test_an_index_without_its_map_is_named(tmp_path: Path, content: dict[str, Any]) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    (directory / "model.safetensors.index.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"model.safetensors.index.json: has no weight_map"):
        load_model(directory)


def test_an_index_reaches_no_files_elsewhere(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path / "a", UNTIED, tokenizer=False)
    (directory / "model.safetensors").rename(tmp_path / "model.safetensors")
    index = {"weight_map": {"model.norm.weight": "../model.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"weight_map names '../model.safetensors', which is no file beside it"):
        load_model(directory)


def test_a_weight_in_two_shards_is_named(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, shards=2, tokenizer=False)
    first, second = (directory / f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
    twice = next(iter(load_file(first)))
    save_file({name: t.clone() for name, t in load_file(second).items()} | {twice: load_file(first)[twice]}, second)
    with pytest.raises(CheckpointError, match=rf"{twice} is in {first.name} and in {second.name}"):
        load_model(directory)


@pytest.mark.parametrize("keep", [0, 7, 1000, -1])
def test_a_truncated_shard_is_named(tmp_path: Path, keep: int) -> None:
    path = write_checkpoint(tmp_path, UNTIED, shards=3, tokenizer=False) / "model-00002-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=rf"{path.name}: not a whole safetensors file"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "file",
    ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"],
)
def test_a_pointer_in_place_of_a_file_is_named(tmp_path: Path, file: str) -> None:
    directory = write_checkpoint(tmp_path, UNTIED)
    (directory / file).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    with pytest.raises(CheckpointError, match=rf"{file}: is a Git-LFS pointer, not the file itself"):
        load_model(directory)


def test_weights_are_made_where_they_go_and_never_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value is copied into place once: no initialisation, and no whole copy in another dtype."""
    copied = 0
    place = loading.place

    def count(tensor: torch.Tensor, target: torch.Tensor) -> None:
        nonlocal copied
        copied += target.numel()
        assert target.dtype == torch.bfloat16
        place(tensor, target)

    directory = write_checkpoint(tmp_path, UNTIED, shards=2, seed=5, tokenizer=False)
    monkeypatch.setattr(loading, "place", count)
    before = torch.get_rng_state()
    model = load_model(directory, dtype=torch.bfloat16)
    assert copied == model.config.parameters
    assert torch.equal(torch.get_rng_state(), before)


def test_loading_takes_little_memory_beside_the_weights(tmp_path: Path) -> None:
    """100 MB of which no tensor has more than 10: in a process of its own, mapped files counted."""
    measured.write_checkpoint(tmp_path, num_hidden_layers=3, vocab_size=5120, max_position_embeddings=512)
    found = measured.measure(tmp_path, measured.LOADER, Path.cwd(), "bfloat16", repeats=1)
    assert found["weights_mb"] == 115
    assert found["of_largest_tensor"] <= 2
