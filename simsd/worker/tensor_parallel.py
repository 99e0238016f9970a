"""Tensor parallelism: one model over several processes, each with a share of the heads and of the feed-forward.

Every rank has a whole `Worker`. Callers call rank 0, which sends each call to the other ranks before it makes the call
itself. A worker does only what its calls say, so ranks that get the same calls hold the same pages. They exchange
tensors only in the sums inside the model.
"""

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from simsd.config import WorkerConfig
from simsd.errors import InternalError
from simsd.messages.round import Ahead, Proposals, Verdicts, Work
from simsd.messages.worker import PageUse
from simsd.worker.ports import free_port
from simsd.worker.worker import Worker

JOIN_TIMEOUT = timedelta(minutes=10)
"""How long ranks wait for each other, at the start and in a sum. Loading a large model may take minutes."""
IDLE_TIMEOUT = timedelta(days=365)
"""How long a rank waits for the next call."""
CLOSE_S = 10.0


class Ranks:
    """The communication of one rank with the others: sums of tensors over the device's backend, messages over gloo."""

    def __init__(self, rank: int, size: int, address: str, device: str) -> None:
        """Join the other ranks, and wait until all have joined. address: the HOST:PORT on which rank 0 listens."""
        self.rank, self.size = rank, size
        backend = "nccl" if device.startswith("cuda") else "gloo"
        if backend == "nccl":
            torch.cuda.set_device(device)
        dist.init_process_group(backend, f"tcp://{address}", timeout=JOIN_TIMEOUT, rank=rank, world_size=size)
        self._messages = dist.new_group(backend="gloo", timeout=IDLE_TIMEOUT)

    def sum(self, x: Tensor) -> Tensor:
        """Sum `x` over all ranks, in place."""
        dist.all_reduce(x)
        return x

    def tell(self, message: Any) -> None:
        """Send a message from rank 0 to all other ranks, which must be listening."""
        dist.broadcast_object_list([message], src=0, group=self._messages)

    def listen(self) -> Any:
        """Wait for the next message of rank 0. `RuntimeError` if rank 0 is gone."""
        box: list[Any] = [None]
        dist.broadcast_object_list(box, src=0, group=self._messages)
        return box[0]

    def close(self) -> None:
        dist.destroy_process_group()


class LeadingWorker:
    """Rank 0, with the interface of a `Worker`. Calls are serialised, so that all ranks get them in the same order."""

    def __init__(self, config: WorkerConfig, address: str) -> None:
        self._ranks = Ranks(0, config.tensor_parallel, address, config.device)
        self._worker = Worker(config, ranks=self._ranks)
        self.info = self._worker.info
        self._lock = threading.Lock()

    def propose(self, batch: list[Work]) -> Proposals:
        return self._all("propose", batch)

    def propose_ahead(self, batch: list[Work]) -> Ahead:
        return self._all("propose_ahead", batch)

    def take_ahead(self, batch: list[Work]) -> None:
        self._all("take_ahead", batch)

    def verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
        return self._all("verify", batch, proposals)

    def verify_next(self, ahead: Ahead | None) -> Verdicts | None:
        """Derive the next round on rank 0 alone and send it to the others, so that ranks cannot derive different ones.

        It returns None if a sequence cannot go on.
        """
        with self._lock:
            planned = self._worker.next_round(ahead)
            return self._tell("verify", *planned) if planned else None

    def release(self, seq_ids: list[str]) -> None:
        self._all("release", seq_ids)

    def release_all(self) -> None:
        self._all("release_all")

    def page_use(self, check: bool = True) -> PageUse:
        return self._worker.page_use(check)

    def close(self) -> None:
        """Tell the other ranks to end. They may be gone already."""
        with self._lock, contextlib.suppress(RuntimeError):
            self._ranks.tell(None)
        self._ranks.close()

    def _all(self, method: str, *arguments: Any) -> Any:
        with self._lock:
            return self._tell(method, *arguments)

    def _tell(self, method: str, *arguments: Any) -> Any:
        self._ranks.tell((method, arguments))
        return getattr(self._worker, method)(*arguments)


def follow(config: WorkerConfig, rank: int, address: str) -> None:
    """Run a rank other than 0 until rank 0 closes. `RuntimeError` if rank 0 is gone."""
    ranks = Ranks(rank, config.tensor_parallel, address, config.device)
    worker = Worker(config, ranks=ranks)
    while (message := ranks.listen()) is not None:
        method, arguments = message
        getattr(worker, method)(*arguments)
    ranks.close()


class LocalRanks(LeadingWorker):
    """Tensor parallelism without Ray: rank 0 runs in this process, and the other ranks in child processes."""

    def __init__(self, config: WorkerConfig) -> None:
        address = f"127.0.0.1:{free_port()}"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self.followers = []
        for rank in range(1, config.tensor_parallel):
            command = [
                sys.executable,
                "-m",
                "simsd.worker.tensor_parallel",
                on_rank(config, rank).model_dump_json(),
                address,
                str(rank),
            ]
            self.followers.append(subprocess.Popen(command, env=environment))
        try:
            super().__init__(on_rank(config, 0), address)
        except BaseException:
            self._stop(0)
            raise
        atexit.register(self.close)

    def close(self) -> None:
        atexit.unregister(self.close)
        super().close()
        self._stop(CLOSE_S)

    def _stop(self, grace_s: float) -> None:
        for process in self.followers:
            try:
                process.wait(grace_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def on_rank(config: WorkerConfig, rank: int) -> WorkerConfig:
    """Return the settings of one rank on a machine that all ranks share. The device "cuda" becomes "cuda:<rank>"."""
    return config.model_copy(update={"device": f"cuda:{rank}"}) if config.device == "cuda" else config


def main() -> None:
    config, address, rank = sys.argv[1:]
    settings = WorkerConfig.model_validate_json(config)
    try:
        follow(settings, int(rank), address)
    except RuntimeError as error:
        raise InternalError(f"rank {rank} lost its peers: {error}") from error


if __name__ == "__main__":
    main()
