"""What is found wrong before anything starts, and what the message says."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deployments.app import build_app
from deployments.args import ServeArgs
from simsd.cli import main as cli
from simsd.config import SHIPPED, WorkerConfig
from simsd.errors import CheckpointError, ConfigError, PairMismatchError, SimSDError
from simsd.models.description import check_startup
from simsd.models.files import resolve_model
from simsd.worker.worker import Worker


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


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a window": (
        lambda d: edit(d / "config.json", sliding_window=512, use_sliding_window=True),
        "config.json: sliding_",
    ),
    "an activation": (lambda d: edit(d / "config.json", hidden_act="gelu"), "config.json: hidden_act is supported"),
    "a base": (lambda d: edit(d / "config.json", rope_parameters={"rope_theta": 5e5}), "the base of RoPE must be one"),
    "a block size": (
        lambda d: edit(d / "config.json", block_size="4"),
        "block_size must be a whole number from 1 to 64",
    ),
    "end tokens": (
        lambda d: edit(d / "generation_config.json", eos_token_id=[2, 151643]),
        "generation_config.json: eos_",
    ),
    "a tie": (
        lambda d: edit(d / "config.json", tie_word_embeddings="false"),
        "tie_word_embeddings must be true or false",
    ),
    "a pointer": (lambda d: (d / "tokenizer.json").write_text(POINTER), "tokenizer.json: is a Git-LFS pointer"),
    "weights not fetched": (lambda d: (d / "model.safetensors").write_text(POINTER), "model.safetensors: is a Git-LFS"),
    "an index": (lambda d: (d / "model.safetensors.index.json").write_text("{}"), "index.json: has no weight_map"),
    "a truncated file": (
        lambda d: (d / "model.safetensors").write_bytes((d / "model.safetensors").read_bytes()[:-1]),
        "model.safetensors: not a whole safetensors file",
    ),
    "a template": (
        lambda d: (d / "chat_template.jinja").write_text("{% if %}"),
        "chat_template.jinja: the chat template",
    ),
    "another head": (
        lambda d: rewrite_weights(d, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"] + 1})),
        "lm_head.weight must repeat model.embed_tokens.weight",
    ),
    "integers": (
        lambda d: rewrite_weights(d, lambda t: t.update({"model.norm.weight": t["model.norm.weight"].char()})),
        "model.norm.weight is stored as I8",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_way_in_finds_the_same_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str) -> None:
    """`simsd serve`, `build_app`, `simsd models` and a worker: the same line, before anything that runs is replaced."""
    directory = copy(tmp_path)
    spoil, says = FAULTS[fault]
    spoil(directory)
    config = WorkerConfig(role="draft", model=str(directory), device="cpu")
    ways: list[Callable[[], object]] = [
        lambda: check(directory),
        lambda: build_app(ServeArgs(draft=str(directory))),
        lambda: Worker(config),
    ]
    found = set()
    for way in ways:
        with pytest.raises(CheckpointError) as caught:
            way()
        found.add(str(caught.value))
    assert cli.main(["models", str(directory)]) == 1
    found.add(capsys.readouterr().err.strip().removeprefix("simsd models: error: "))
    assert len(found) == 1
    message = found.pop()
    assert says in message
    assert str(directory) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"page_size": 6}, ConfigError, "page_size 6 is not a whole number of blocks of 4"),
        ({"mask_token_id": 1024}, ConfigError, "mask_token_id 1024 is not in the vocabulary of 1024"),
        ({"mask_token_id": 2}, ConfigError, "mask_token_id 2 is an end-of-sequence token, too"),
        ({"tensor_parallel": 3}, ConfigError, "num_attention_heads 8 cannot be shared equally"),
        ({"dtype": "float16", "device": "cpu"}, ConfigError, "float16 is not available on the CPU"),
    ],
)
def test_an_application_is_not_built_from_settings_that_cannot_work(
    settings: dict[str, Any], error: type[SimSDError], says: str
) -> None:
    with pytest.raises(error, match=says):
        build_app(ServeArgs(**settings))


def test_an_application_is_not_built_from_a_pair_that_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(PairMismatchError, match="block size"):
        build_app(ServeArgs(draft=str(copy(tmp_path, block_size=8))))


@pytest.mark.parametrize("target", ["/models/SDAR-8B-Chat", "JetLM/SDAR-8B-Chat"])
def test_models_that_only_the_engines_have_are_left_to_them(
    target: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The head of a cluster builds the application, has no models and perhaps no GPU, and fetches nothing."""
    import huggingface_hub

    def offline(name: str, allow_patterns: list[str], local_files_only: bool = False) -> str:
        assert local_files_only
        raise huggingface_hub.errors.LocalEntryNotFoundError("not cached")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with caplog.at_level(logging.INFO):
        build_app(ServeArgs(target=target, draft=target, device="cuda"))
    assert caplog.messages == [
        f"{role} {target}: its files are not on this machine; its engine checks them" for role in ("draft", "target")
    ]
    # What is here is checked nevertheless.
    directory = copy(tmp_path, hidden_act="gelu")
    with pytest.raises(CheckpointError, match="hidden_act"):
        build_app(ServeArgs(target=target, draft=str(directory)))
