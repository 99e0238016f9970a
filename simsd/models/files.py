"""From a model's name to its files."""

from pathlib import Path

from simsd.config import SHIPPED
from simsd.errors import CheckpointError

ASSETS = Path(__file__).parents[1] / "assets"
FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja")
"""What is fetched from a hub: weights as safetensors, settings, tokenizer. Never code, never pickles."""
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""How the file begins that Git leaves in the place of a large one whose content was not fetched."""


def resolve_model(name: str, role: str) -> Path:
    """The directory of a checkpoint. `role` is "draft" or "target" and tells which half of the shipped pair is meant.

    `name` is "shipped", a directory, or the name of a repository on the Hugging Face hub (fetched once, then cached).
    `CheckpointError` says what was tried.
    """
    if name == SHIPPED:
        directory = ASSETS / role
        if not directory.is_dir():
            raise CheckpointError(f"the shipped {role} is missing from {directory}; reinstall, or name a model instead")
        return directory
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise CheckpointError(f"{role}: {name} is a file; a checkpoint is a directory with config.json and safetensors")
    if not _could_be_of_the_hub(name):
        raise CheckpointError(f"{role}: no directory {name}; a hub name would look like JetLM/SDAR-1.7B-Chat")
    return _download(name, role)


def resolve_here(name: str, role: str) -> Path | None:
    """As `resolve_model`, of what this machine has: nothing is fetched, and None where the files are elsewhere.

    A model of the hub counts as here once its settings and its weights are in the cache.
    """
    if name == SHIPPED or Path(name).expanduser().exists():
        return resolve_model(name, role)
    if not _could_be_of_the_hub(name):
        return None
    from huggingface_hub import snapshot_download

    try:
        directory = Path(snapshot_download(name, allow_patterns=list(FILES), local_files_only=True))
    except Exception:  # as in `_download`: whatever the client raises, and none of it means that the model is bad
        return None
    whole = (directory / "config.json").is_file() and any(directory.glob("*.safetensors"))
    return directory if whole else None


def _could_be_of_the_hub(name: str) -> bool:
    return name.count("/") == 1 and not name.startswith((".", "/", "~"))


def check_files(directory: Path) -> None:
    """`CheckpointError` that names the file if one of the checkpoint's is a Git-LFS pointer, not its content."""
    for path in sorted(path for pattern in FILES for path in directory.glob(pattern) if path.is_file()):
        with path.open("rb") as file:
            if file.read(len(LFS_POINTER)) == LFS_POINTER:
                raise CheckpointError(f"{path}: is a Git-LFS pointer, not the file itself; fetch it with git lfs pull")


def _download(name: str, role: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=list(FILES)))
    except LocalEntryNotFoundError as error:
        raise CheckpointError(
            f"{role}: {name} is neither a directory here nor in the hub's cache, and the hub cannot be reached"
        ) from error
    except Exception as error:  # whatever the hub's client raises, the user needs to know what was tried
        summary = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{role}: {name} is not a directory here, and fetching it from the hub failed: {summary}"
        ) from error
