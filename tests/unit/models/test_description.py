"""A description without weights is what the worker says of itself; what is taken from a name is told."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simsd.cli import main as cli
from simsd.config import WorkerConfig
from simsd.models import description
from simsd.models.description import describe
from simsd.models.files import resolve_here
from simsd.worker.worker import Worker
from tests.unit.checkpoints import Shape, write_checkpoint

TINY = Shape(hidden_size=32, heads=2, kv_heads=1, intermediate_size=48, max_position_embeddings=90)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"), TINY, eos_token_ids=[7, 0])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"block_size": 16, "max_rows": 64},  # 16 * 18 rows for every branch of a block
        {"block_size": 3, "max_model_len": 50},
        {"page_size": 8, "kv_tokens": 100},
        {"mask_token_id": 5, "dtype": "bfloat16"},
    ],
)
def test_a_description_is_what_the_worker_says(checkpoint: Path, settings: dict[str, Any]) -> None:
    config = WorkerConfig(role="draft", model=str(checkpoint), device="cpu", **({"kv_tokens": 128} | settings))
    described, found = describe(config), Worker(config).info
    assert found.weights_hash
    dtype = settings.get("dtype", "float32")
    assert dataclasses.replace(described, weights_hash=found.weights_hash, dtype=dtype) == found


def test_ends_contexts_and_rows(checkpoint: Path) -> None:
    info = describe(WorkerConfig(role="target", model=str(checkpoint), block_size=16, max_rows=64))
    assert info.eos_token_ids == (0, 2, 7)  # 2 is the end of a turn, which the files forget
    assert info.max_model_len == 80  # of 90 positions, whole blocks
    assert info.max_rows == 16 * 18


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[str]:
    description._say_once.cache_clear()
    return caplog.messages


def named(directory: Path, name: str, block_size: int | None, mask_token_id: int | None) -> Path:
    """A checkpoint in a directory of this name, whose vocabulary has the public mask token."""
    shape = dataclasses.replace(TINY, vocab_size=151936, hidden_size=2, head_dim=2, layers=1)
    return write_checkpoint(directory / name, shape, block_size=block_size, mask_token_id=mask_token_id)


def test_what_only_the_name_tells_is_said_once(tmp_path: Path, lines: list[str], caplog: Any) -> None:
    model = str(named(tmp_path, "SDAR-1.7B-Chat-b8", None, None))
    for role in ("draft", "target", "target"):
        info = describe(WorkerConfig(role=role, model=model))  # type: ignore[arg-type]
        assert (info.block_size, info.mask_token_id) == (8, 151669)
    assert caplog.messages == [
        f"{model}: only the checkpoint's name tells block_size 8 and mask_token_id 151669",
    ]


def test_a_setting_or_a_file_needs_no_name(tmp_path: Path, lines: list[str], caplog: Any) -> None:
    model = str(named(tmp_path, "SDAR-1.7B-Chat-b8", None, 3))
    assert describe(WorkerConfig(role="target", model=model, block_size=2)).block_size == 2
    assert caplog.messages == []


def test_describing_needs_no_torch(checkpoint: Path) -> None:
    code = (
        "import sys; from simsd.cli.main import main\n"
        f"assert main(['models', {str(checkpoint)!r}]) == 0\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == 0


def test_models_without_a_block_size_are_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server can be told it: such a checkpoint is usable."""
    path = write_checkpoint(tmp_path, TINY, block_size=None)
    assert cli.main(["models", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["block_size"] is None
    assert (facts["mask_token_id"], facts["context"]) == (3, 90)


def test_weights_bytes_are_those_that_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_checkpoint(tmp_path, TINY, shards=2)
    size = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    (path / "adapter.safetensors").write_bytes(b"0" * 1000)
    assert cli.main(["models", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weights_bytes"] == size


def test_what_is_on_this_machine(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    assert resolve_here(str(checkpoint), "target") == checkpoint
    assert resolve_here(str(tmp_path / "elsewhere"), "target") is None
    asked: list[bool] = []

    def cached(name: str, allow_patterns: list[str], local_files_only: bool) -> str:
        asked.append(local_files_only)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", cached)
    assert resolve_here("JetLM/SDAR-1.7B-Chat", "target") is None  # settings and tokenizer at most
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).touch()
    assert resolve_here("JetLM/SDAR-1.7B-Chat", "target") == tmp_path
    assert asked == [True, True]
