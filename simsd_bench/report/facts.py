"""The machine, versions and commit with which figures were measured."""

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from simsd import __version__


def machine(threads: int, device: str) -> dict[str, Any]:
    """Return machine, versions and commit; `device` is the setting ("auto": a GPU if there is one)."""
    import torch
    import transformers

    names = (line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name"))
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return {
        "cpu": next(names, platform.processor()),
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "gpu": torch.cuda.get_device_name() if on_gpu else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "simsd": __version__,
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _commit() -> str | None:
    """Return the commit of the checkout with this file, with a plus if tracked files have changed since."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return found.stdout.strip() or None


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
