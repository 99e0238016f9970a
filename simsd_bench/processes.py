"""The processes of a running application, named by their parts."""

import os
from dataclasses import dataclass
from pathlib import Path

from deployments.local import APP_NAME
from deployments.processes import descendants

REPLICA = "ray::ServeReplica:"
NAMES = {
    f"{REPLICA}{APP_NAME}:Ingress": "ingress replica",
    f"{REPLICA}{APP_NAME}:Coordinator": "coordinator replica",
    f"{REPLICA}{APP_NAME}:TargetServer": "target replica",
    f"{REPLICA}{APP_NAME}:DraftServer": "draft replica",
    "ray::Engine": "engine",
    "ray::ServeController": "Serve's controller",
    "ray::ProxyActor": "Serve's proxy",
    "raylet": "raylet",
    "gcs_server": "GCS",
}
"""Beginning of a process's command line, or the name of its program -> our name for it."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process: its name, resident memory, open files, and the CPU seconds that it has taken so far."""

    name: str
    pid: int
    rss_mb: float
    fds: int
    cpu_s: float


def processes(root: int | None = None) -> list[Process]:
    """Return the processes below `root`, or below this one, named by `NAMES`, else "other" (Linux)."""
    found = []
    for pid in descendants(os.getpid() if root is None else root):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
            fds = len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:  # the process has ended
            continue
        names = [name for start, name in NAMES.items() if command.startswith(start) or command.endswith(f"/{start}")]
        rss_mb = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        cpu_s = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        found.append(Process(names[0] if names else "other", pid, rss_mb, fds, cpu_s))
    return found
