"""The parts of a running cluster: components that can be killed, actors, objects, nodes."""

import contextlib
import logging
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import ray
from ray import serve
from ray._private.internal_api import get_memory_info_reply, get_state_from_address, global_gc
from ray.cluster_utils import Cluster

from deployments.coordinator import EngineState
from deployments.local import APP_NAME, ENVIRONMENT, OBJECT_STORE_BYTES, STOP_GRACE_S
from deployments.processes import nothing_left_behind
from simsd.messages.worker import Role
from simsd_bench.processes import processes

Component = Literal["draft", "target", "coordinator", "ingress"]
NODE_CHECK = {"RAY_health_check_period_ms": "1000"}
"""With this setting, Ray notices a lost node after some seconds."""


def engines() -> dict[Role, EngineState]:
    """Return the state of both engines as a coordinator sees them, with the integrity of their pages checked."""
    return serve.get_deployment_handle("Coordinator", APP_NAME).engines.remote().result(timeout_s=60)


def pid_of(component: Component) -> int:
    """Return the id of a process of the component."""
    if component in ("draft", "target"):
        return engines()[component].pid
    return next(process.pid for process in processes() if process.name == f"{component} replica")


def kill(component: Component) -> int:
    """Kill the component with SIGKILL, and return the id of its process."""
    pid = pid_of(component)
    os.kill(pid, signal.SIGKILL)
    return pid


def live_actors() -> dict[str, int]:
    """Return the number of live actors by class."""
    counts: dict[str, int] = {}
    for actor in ray._private.state.actors(actor_state_name="ALIVE").values():
        name = actor["ActorClassName"]
        counts[name] = counts.get(name, 0) + 1
    return counts


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of Ray's object stores."""

    count: int
    bytes: int


def objects() -> Stored:
    address = ray.get_runtime_context().gcs_address
    stats = get_memory_info_reply(get_state_from_address(address)).store_stats
    return Stored(stats.num_local_objects, stats.object_store_bytes_used)


def objects_down_to(count: int, timeout_s: float) -> Stored:
    """Wait until at most `count` objects are stored, at most `timeout_s` seconds; returns what is stored then.

    Serve's controller holds some objects in reference cycles, so garbage is collected on all nodes meanwhile.
    """
    deadline = time.monotonic() + timeout_s
    while (found := objects()).count > count and time.monotonic() < deadline:
        global_gc()
        time.sleep(1)
    return found


class Nodes:
    """A cluster whose nodes are raylets on this machine; the first is the head."""

    def __init__(self, cpus: int, gpus: int, directory: str) -> None:
        self._settings = {"num_cpus": cpus, "num_gpus": gpus, "object_store_memory": OBJECT_STORE_BYTES}
        head = self._settings | {"include_dashboard": False, "temp_dir": directory}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.all = [self._cluster.head_node]

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self) -> None:
        self.all.append(self._cluster.add_node(**self._settings))

    def kill(self, node_id: str) -> None:
        """Kill the node with this id, with all its processes. It must not be the head."""
        [victim] = [node for node in self.all[1:] if node.node_id == node_id]
        self.all.remove(victim)
        self._cluster.remove_node(victim, allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@contextlib.contextmanager
def several_nodes(count: int, cpus: int, gpus: int) -> Iterator[Nodes]:
    """Run a cluster of `count` nodes while the context is open; nothing of it is left afterwards."""
    os.environ.update({name: os.environ.get(name, value) for name, value in (ENVIRONMENT | NODE_CHECK).items()})
    directory = tempfile.TemporaryDirectory(prefix="s-", dir="/tmp", ignore_cleanup_errors=True)
    with directory as path, nothing_left_behind(STOP_GRACE_S):
        nodes = Nodes(cpus, gpus, path)
        try:
            for _ in range(count - 1):
                nodes.add()
            ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.ERROR)
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()
