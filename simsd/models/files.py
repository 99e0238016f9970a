"""The files of a model, by its name."""

from pathlib import Path

from simsd.config import SHIPPED
from simsd.errors import CheckpointError

ASSETS = Path(__file__).parents[1] / "assets"
FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja")
"""The files that are fetched from a hub: settings, tokenizer, and weights as safetensors. Neither code nor pickles are
fetched."""
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""The beginning of the small file that Git leaves in place of a large one whose content was not fetched."""


def resolve_model(name: str, role: str) -> Path:
    """Return the directory of a checkpoint, and fetch it from the hub if need be.

    name: "shipped", a directory, or the name of a repository on the Hugging Face hub, which is fetched once and then
    cached. role: "draft" or "target", which tells the shipped models apart. `CheckpointError` says what was tried.
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
    """Return the directory of a checkpoint if its files are on this machine, else None. Nothing is fetched.

    A model of the hub is on this machine if its config.json and some of its weights are in the cache.
    """
    if name == SHIPPED or Path(name).expanduser().exists():
        return resolve_model(name, role)
    if not _could_be_of_the_hub(name):
        return None
    from huggingface_hub import snapshot_download

    try:
        directory = Path(snapshot_download(name, allow_patterns=list(FILES), local_files_only=True))
    except Exception:  # The client may raise anything, and nothing that it raises means that the model is bad.
        return None
    whole = (directory / "config.json").is_file() and any(directory.glob("*.safetensors"))
    return directory if whole else None


def _could_be_of_the_hub(name: str) -> bool:
    return name.count("/") == 1 and not name.startswith((".", "/", "~"))


def check_files(directory: Path) -> None:
    """Raise a `CheckpointError` if a file of the checkpoint is a Git-LFS pointer instead of its content."""
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
    except Exception as error:  # The hub's client may raise anything, and the user must know what was tried.
        summary = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{role}: {name} is not a directory here, and fetching it from the hub failed: {summary}"
        ) from error
