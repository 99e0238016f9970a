"""A new family is one module and one row: a scratch one loads, decodes and is described like SDAR."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from simsd.cli import main as cli
from simsd.config import LoopConfig, WorkerConfig
from simsd.errors import CheckpointError, InternalError
from simsd.in_process import build_local, generate_all
from simsd.models.config import ModelConfig
from simsd.models.description import check_startup, describe
from simsd.models.family import Family, Layout, Piece
from simsd.models.loading import checkpoint_tensors, load_model, save_model
from simsd.models.registry import FAMILIES
from tests.oracle import block_causal, dense_logits
from tests.unit import toy_tokenizer
from tests.unit.checkpoints import Shape, random_weights, write_checkpoint, write_weights
from tests.unit.loops import answers, request
from tests.unit.models.test_logits import oracle_of
from tests.unit.scratch_family import ARCHITECTURE, KEYS, SCRATCH, Scratch, read_config

SHAPE = Shape(hidden_size=32, heads=4, kv_heads=2, intermediate_size=48)
NAMES = {
    "model.embed_tokens": "wte",
    "model.norm": "ln_f",
    "lm_head": "ff_out",
    "model.layers": "blocks",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "self_attn.o_proj": "attention.dense",
    "self_attn.q_norm": "attention.query_layernorm",
    "self_attn.k_norm": "attention.key_layernorm",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}


@pytest.fixture(autouse=True)
def row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, ARCHITECTURE, SCRATCH)


def renamed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """SDAR's tensors as the scratch family stores them."""

    def rename(key: str) -> str:
        for theirs, ours in NAMES.items():
            key = key.replace(theirs, ours)
        return key

    out = {rename(key): tensor for key, tensor in weights.items() if ".self_attn." not in key or "_norm" in key}
    for layer in range(SHAPE.layers):
        theirs, ours = f"model.layers.{layer}.self_attn", f"blocks.{layer}.attention"
        out[f"{ours}.dense.weight"] = weights[f"{theirs}.o_proj.weight"]
        fused = [weights[f"{theirs}.{part}_proj.weight"] for part in "qkv"]
        out[f"{ours}.query_key_value.weight"] = torch.cat(fused)
    return out


def write_scratch(directory: Path, seed: int, jitter: float = 0.0, **changes: Any) -> Path:
    """A checkpoint of the family in two shards, with the weights that SDAR's has for this seed."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {KEYS.get(key, key): value for key, value in SHAPE.config().items() if key != "hidden_act"}
    (directory / "config.json").write_text(json.dumps(config | {"architectures": [ARCHITECTURE]} | changes))
    write_weights(directory, renamed(random_weights(SHAPE, seed, jitter)), shards=2)
    return toy_tokenizer.write(directory)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    return write_scratch(tmp_path / "scratch", seed=3)


def test_logits_are_an_independent_implementations(directory: Path) -> None:
    model = load_model(directory)
    tokens, visible = list(range(4, 27)), block_causal(23, 4)
    mask = torch.zeros(1, 1, 23, 23).masked_fill(~visible, float("-inf"))
    with torch.no_grad():
        expected = oracle_of(SHAPE, seed=3)(torch.tensor([tokens]), attention_mask=mask).logits[0]
    assert expected.abs().max() > 3
    torch.testing.assert_close(dense_logits(model, tokens, visible), expected, rtol=0, atol=1e-4)


def test_it_decodes_like_sdar_with_the_same_weights(directory: Path, tmp_path: Path) -> None:
    """Every loop, method and page is the engine's; only names differ."""

    def decode(target: Path, draft: Path) -> Any:
        settings = {"device": "cpu", "kv_tokens": 2048, "threads": 1}
        target_config = WorkerConfig(role="target", model=str(target), **settings)
        loop = build_local(target_config, WorkerConfig(role="draft", model=str(draft), **settings), LoopConfig())
        return answers(generate_all(loop, [request("a", 30), request("b", 9, method="exact", temperature=1.0, seed=1)]))

    sdar = [write_checkpoint(tmp_path / role, SHAPE, seed=3, jitter=j) for role, j in (("t", 0.0), ("d", 0.1))]
    assert decode(directory, write_scratch(tmp_path / "draft", 3, jitter=0.1)) == decode(*sdar)


def test_each_rank_reads_its_heads_of_the_fused_matrix(directory: Path) -> None:
    whole = load_model(directory).blocks[1]
    for rank in (0, 1):
        part = load_model(directory, rank=rank, ranks=2).blocks[1]
        sizes = (64, 32, 32)
        mine = part.attn.qkv_proj.weight.split([size // 2 for size in sizes])
        theirs = whole.attn.qkv_proj.weight.split(sizes)
        for one, other in zip(mine, theirs, strict=True):
            assert torch.equal(one, other.chunk(2)[rank])
        assert torch.equal(part.attn.o_proj.weight, whole.attn.o_proj.weight.chunk(2, dim=1)[rank])


def test_saved_tensors_are_the_checkpoints(directory: Path, tmp_path: Path) -> None:
    model, expected = load_model(directory), renamed(random_weights(SHAPE, 3))
    found = checkpoint_tensors(model)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    (directory / "model.safetensors.index.json").unlink()
    save_model(model, directory / "model.safetensors", torch.float32)
    assert all(torch.equal(t, expected[key]) for key, t in checkpoint_tensors(load_model(directory)).items())


def test_it_is_described_and_checked(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = WorkerConfig(role="target", model=str(directory))
    check_startup(None, config)
    info = describe(config)
    assert (info.architecture, info.block_size, info.vocab_size) == (ARCHITECTURE, 4, SHAPE.vocab_size)
    assert info.eos_token_ids == (1,)  # its own end of turn, not SDAR's
    assert cli.main(["models", str(directory)]) == 0
    assert ARCHITECTURE in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"alibi": True}, "alibi is supported as false only; it is true"),
        ({"activation_type": "gelu"}, 'activation_type is supported as "silu" only; it is "gelu"'),
        ({"d_model": "32"}, 'd_model must be a whole number from 1; it is "32"'),
        ({"n_kv_heads": 3}, "n_kv_heads must divide n_heads 4; it is 3"),
        ({"bd_size": None}, "bd_size must be a whole number from 1 to 64, or absent; it is null"),
        ({"rope_scaling": {"type": "linear"}}, 'rope_scaling {"type": "linear"} is not supported'),
    ],
)
def test_its_settings_are_refused_by_its_own_names(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    path = write_scratch(tmp_path, seed=3, **changes)
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    assert says in str(caught.value)


def test_a_layout_that_forgets_a_parameter_is_a_fault_of_ours(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory would hold whatever was there before."""
    forgetful = Layout(SCRATCH.layout(load_model(directory).config).pieces[:-1])
    monkeypatch.setitem(FAMILIES, ARCHITECTURE, Family(read_config, lambda _: forgetful, Scratch))
    weights = renamed(random_weights(SHAPE, 3))
    weights.pop("blocks.1.ff_out.weight")
    write_weights(directory, weights, shards=2)
    with pytest.raises(InternalError, match="does not fill every parameter"):
        load_model(directory)


class WithExperts(Scratch):
    """Three experts of 2 gate rows and 2 up rows, stacked to one parameter, as a grouped product takes them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.experts = nn.Parameter(torch.empty(3, 4 // self.ranks(config), config.hidden_size))

    @staticmethod
    def ranks(config: ModelConfig) -> int:
        return SHAPE.heads // config.num_attention_heads


@pytest.mark.parametrize("ranks", [1, 2])
def test_experts_are_stacked_and_shared_over_ranks(
    directory: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    hidden = SHAPE.hidden_size
    experts = {f"experts.{i}.{part}.weight": torch.randn(2, hidden) for i in range(3) for part in ("gate", "up")}
    pieces = tuple(Piece(key, (2, hidden), "experts", shared=0) for key in experts)

    def layout(config: ModelConfig) -> Layout:
        return Layout((*SCRATCH.layout(config).pieces, *pieces))

    monkeypatch.setitem(FAMILIES, ARCHITECTURE, Family(read_config, layout, WithExperts))
    write_weights(directory, renamed(random_weights(SHAPE, 3)) | experts, shards=2)
    for rank in range(ranks):
        found = load_model(directory, rank=rank, ranks=ranks).experts
        for i in range(3):
            parts = [experts[f"experts.{i}.{part}.weight"].chunk(ranks)[rank] for part in ("gate", "up")]
            assert torch.equal(found[i], torch.cat(parts))
