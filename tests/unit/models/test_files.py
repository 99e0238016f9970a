"""From a name to files: the shipped pair, a directory, a hub name; and what is said when there are none."""

from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from simsd.errors import CheckpointError
from simsd.models import files as checkpoint
from simsd.models.files import resolve_model


def test_a_directory_is_itself(tmp_path: Path) -> None:
    assert resolve_model(str(tmp_path), "target") == tmp_path


def test_shipped_is_the_role_s_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "ASSETS", tmp_path)
    (tmp_path / "draft").mkdir()
    assert resolve_model("shipped", "draft") == tmp_path / "draft"
    with pytest.raises(CheckpointError, match="the shipped target is missing"):
        resolve_model("shipped", "target")


@pytest.mark.parametrize("name", ["no-such-model", "./no/such", "/no/such", "a/b/c"])
def test_a_name_that_is_no_hub_name_asks_no_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
    with pytest.raises(CheckpointError, match="no directory"):
        resolve_model(name, "target")


def test_a_file_is_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.touch()
    with pytest.raises(CheckpointError, match="is a file"):
        resolve_model(str(path), "draft")


def test_a_hub_name_fetches_data_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked[name] = allow_patterns
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert resolve_model("JetLM/SDAR-1.7B-Chat", "draft") == tmp_path
    patterns = asked["JetLM/SDAR-1.7B-Chat"]
    assert "*.safetensors" in patterns
    assert not any(pattern.endswith((".py", ".bin", ".pt", "*")) for pattern in patterns)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (LocalEntryNotFoundError("offline"), "cannot be reached"),
        (ValueError("no such repo\nlong tail"), "no such repo$"),
    ],
)
def test_a_failed_fetch_says_what_was_tried(error: Exception, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(CheckpointError, match=says) as caught:
        resolve_model("JetLM/SDAR-1.7B-Chat", "draft")
    assert "draft: JetLM/SDAR-1.7B-Chat" in str(caught.value)
