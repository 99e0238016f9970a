"""What is found wrong before Ray starts, and what the message says."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from simsd.config import SHIPPED, WorkerConfig
from simsd.errors import CheckpointError, ConfigError, PairMismatchError, SimSDError
from simsd.models.description import check_startup
from simsd.models.files import resolve_model


def copy(tmp_path: Path, **changes: Any) -> Path:
    """A copy of the shipped draft, its config.json changed; a value of None takes a key out."""
    directory = tmp_path / "changed"
    shutil.copytree(resolve_model(SHIPPED, "draft"), directory)
    edit(directory / "config.json", **changes)
    return directory


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def check(draft: str | Path = SHIPPED, **settings: Any) -> None:
    target = WorkerConfig(role="target", model=SHIPPED, **settings)
    check_startup(WorkerConfig(role="draft", model=str(draft), **settings), target)


def test_the_shipped_pair_passes() -> None:
    check()
    check(block_size=8)
    check_startup(None, WorkerConfig(role="target", model=SHIPPED))


@pytest.mark.parametrize("changes", [{"block_size": 8}, {"mask_token_id": 5}])
def test_pairs_that_do_not_fit(tmp_path: Path, changes: dict[str, int]) -> None:
    directory = copy(tmp_path, **changes)
    name, value = next(iter(changes.items()))
    with pytest.raises(PairMismatchError) as caught:
        check(directory)
    message = str(caught.value)
    assert name.replace("_", " ") in message
    assert f"{directory}: {value}" in message
    assert SHIPPED in message


def test_another_tokenizer(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    content = json.loads((directory / "tokenizer.json").read_text())
    vocab = content["model"]["vocab"]
    first, second = list(vocab)[50:52]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    (directory / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(PairMismatchError, match="tokenizer"):
        check(directory)


def rewrite_weights(directory: Path, change: Any) -> None:
    from safetensors.torch import load_file as load_torch
    from safetensors.torch import save_file as save_torch

    tensors = load_torch(directory / "model.safetensors")
    change(tensors)
    save_torch(tensors, directory / "model.safetensors")


def test_weights_missing_extra_and_of_another_shape(tmp_path: Path) -> None:
    directory = copy(tmp_path)
    whole = (directory / "model.safetensors").read_bytes()
    name = "model.layers.0.self_attn.q_proj.weight"

    rewrite_weights(directory, lambda tensors: tensors.pop(name))
    with pytest.raises(CheckpointError, match=f"{name}.*missing"):
        check(directory)
    (directory / "model.safetensors").write_bytes(whole)
    rewrite_weights(directory, lambda tensors: tensors.update(extra=tensors[name].clone()))
    with pytest.raises(CheckpointError, match="unexpected weight 'extra'"):
        check(directory)
    (directory / "model.safetensors").write_bytes(whole)
    rewrite_weights(directory, lambda tensors: tensors.update({name: tensors[name][:-1].clone()}))
    with pytest.raises(CheckpointError, match="shape"):
        check(directory)
    (directory / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="safetensors"):
        check(directory)
    (directory / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="missing"):
        check(directory)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"architectures": ["OtherForCausalLM"]}, CheckpointError, "OtherForCausalLM"),
        ({"hidden_size": None}, CheckpointError, "hidden_size"),
        ({"hidden_size": 64}, CheckpointError, "shape"),
        ({"mask_token_id": 10**6}, ConfigError, "mask_token_id"),
        ({"mask_token_id": None, "block_size": None}, ConfigError, "block_size and mask_token_id"),
    ],
)
def test_configs_that_cannot_be_served(
    tmp_path: Path, changes: dict[str, Any], error: type[SimSDError], says: str
) -> None:
    with pytest.raises(error, match=says):
        check(copy(tmp_path, **changes))


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no directory"):
        check(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"config\.json"):
        check(tmp_path / "empty")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"device": "nonsense"}, "device 'nonsense' is not available"),
        ({"device": "cpu", "dtype": "float16"}, "float16"),
        ({"page_size": 6}, "page_size 6"),
    ],
)
def test_settings_that_cannot_be_had(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check(**settings)


def test_a_device_that_is_not_there() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match="device 'cuda' is not available"):
        check(device="cuda")


def test_heads_that_cannot_be_shared() -> None:
    with pytest.raises(
        ConfigError, match="tensor_parallel 3: the model's num_attention_heads 8 cannot be shared equally"
    ):
        check_startup(None, WorkerConfig(role="target", model=SHIPPED, tensor_parallel=3))
