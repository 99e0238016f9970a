"""Engines: one model in a process of its own, and the deployment that keeps it alive and lends it.

A replica of `EngineServer` hosts one `Engine` actor in its own placement group. Coordinators take a *lease* and then
call the engine directly; the replica is not on the path of a token. Replica and engine live and die together.
"""

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from simsd.config import WorkerConfig
from simsd.messages.round import Ahead, Proposals, Verdicts, Work
from simsd.messages.worker import PageUse, WorkerInfo
from simsd.worker.ports import free_port

ENGINE_CPUS = 0.4
"""Logical CPUs of an engine. They are few, so that a whole pair fits where Ray counts two."""
CONCURRENCY_GROUPS = {"control": 1, "health": 1, "life": 1}
HOLDER_CHECK_S = 1.0
HUNG_CHECK_S = 5.0
LEAVING_S = 10.0
"""Serve checks a running replica each second. A replica that it has not checked for this long is about to stop."""

logger = logging.getLogger(__name__)


def make_worker(config: WorkerConfig) -> Any:
    """Return the real worker. It is imported here, so that only engine processes load torch."""
    from simsd.worker.worker import Worker

    return Worker(config)


def make_leader(config: WorkerConfig, address: str) -> Any:
    """Return rank 0 of a tensor-parallel worker; it waits for the other ranks at `address`."""
    from simsd.worker.tensor_parallel import LeadingWorker

    return LeadingWorker(config, address)


class Follower:
    """Another rank of a tensor-parallel engine. Its one call lasts until rank 0 ends it or is gone."""

    def follow(self, config: WorkerConfig, rank: int, address: str) -> None:
        from simsd.worker.tensor_parallel import follow

        follow(config, rank, address)


class Engine:
    """A worker as an actor. Forwards run one after the other; release and health have threads of their own.

    The actor is not async, so that its forwards stay on one thread. It also answers faster: a call takes 0.8 ms, and
    1.1 ms in an async actor.
    """

    def __init__(self, config: WorkerConfig, worker_factory: Callable[[WorkerConfig], Any]) -> None:
        self._worker = worker_factory(config)
        self._began: float | None = None

    def propose(self, batch: list[Work]) -> Proposals:
        with self._busy():
            return self._worker.propose(batch)

    def propose_ahead(self, batch: list[Work], taken: list[Work]) -> Ahead | None:
        """Draft ahead; returns None where that fails, and the next `propose` then drafts anew."""
        with self._busy():
            try:
                if taken:
                    self._worker.take_ahead(taken)
                ahead: Ahead = self._worker.propose_ahead(batch)
                return ahead
            except Exception:
                logger.exception("drafting ahead failed")
                return None

    def verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
        with self._busy():
            return self._worker.verify(batch, proposals)

    def verify_next(self, ahead: Ahead | None) -> Verdicts | None:
        with self._busy():
            return self._worker.verify_next(ahead)

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        self._began = time.monotonic()
        try:
            yield
        finally:
            self._began = None

    def release_all(self) -> None:
        """Drop every sequence. The call shares the queue of the forwards, so it runs after those already sent."""
        self._worker.release_all()

    @ray.method(concurrency_group="control")
    def release(self, seq_ids: list[str]) -> None:
        self._worker.release(seq_ids)

    @ray.method(concurrency_group="control")
    def page_use(self, check: bool = True) -> PageUse:
        return self._worker.page_use(check)

    @ray.method(concurrency_group="health")
    def info(self) -> WorkerInfo:
        return self._worker.info

    @ray.method(concurrency_group="health")
    def busy_s(self) -> float:
        """Return how long the call under way has taken so far; 0 if there is none."""
        began = self._began
        return time.monotonic() - began if began is not None else 0.0

    @ray.method(concurrency_group="health")
    def pid(self) -> int:
        return os.getpid()

    @ray.method(concurrency_group="life")
    def live(self) -> None:
        """Never return. A caller that awaits it learns at once when this process dies."""
        threading.Event().wait()


def start_engine(
    config: WorkerConfig, worker_factory: Callable[[WorkerConfig], Any], **options: Any
) -> ActorHandle[Any]:
    """Start an engine in a process of its own; `options` are those of a Ray actor."""
    actor: Any = ray.remote(num_cpus=ENGINE_CPUS, concurrency_groups=CONCURRENCY_GROUPS)(Engine)
    handle: ActorHandle[Any] = actor.options(**options).remote(config, worker_factory)
    return handle


@dataclass(frozen=True, slots=True)
class Lent:
    """What a lease gives: the engine's handle and its description."""

    engine: ActorHandle[Any]
    info: WorkerInfo


class EngineServer:
    """A Serve deployment of one role's engines, one to a replica. A lease is a call that is open while one is lent.

    With max_ongoing_requests = 1, Serve's own routing makes leases exclusive and queues the coordinators that wait.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        config: WorkerConfig,
        gpus: float,
        engines: int,
        forward_timeout_s: float,
        worker_factory: Callable[[WorkerConfig], Any],
    ) -> None:
        """Start the engine and, for a tensor-parallel one, its other ranks.

        engines: how many engines share the cores of this node; this sets the threads where `config` does not.
        forward_timeout_s: an engine whose call takes longer is taken for hung, and killed.
        """
        cores = len(os.sched_getaffinity(0))
        config = config.model_copy(update={"threads": config.threads or max(1, cores // engines)})
        self._followers: list[ActorHandle[Any]] = []
        lives: list[Any] = []
        if config.tensor_parallel > 1:
            address = f"{ray.util.get_node_ip_address()}:{free_port()}"
            worker_factory = partial(make_leader, address=address)
            for rank in range(1, config.tensor_parallel):
                follower: Any = ray.remote(Follower).options(**_placement(gpus, rank)).remote()
                self._followers.append(follower)
                lives.append(follower.follow.remote(config, rank, address))
        self._engine = start_engine(config, worker_factory, **_placement(gpus, 0))
        self._info: WorkerInfo = await self._engine.info.remote()
        lives.append(self._engine.live.remote())
        self._seen = time.monotonic()
        self._watch = asyncio.create_task(self._die_with(lives))
        self._forwards = asyncio.create_task(self._kill_hung(await self._engine.pid.remote(), forward_timeout_s))

    async def check_health(self) -> None:
        """Note that Serve has checked this replica. Tasks of their own watch for engines that die or hang."""
        self._seen = time.monotonic()

    async def _die_with(self, lives: list[Any]) -> None:
        """End this process when its engine dies: else requests would be routed to it until a health check fails.

        lives: calls that end only with the engine's processes.
        """
        await asyncio.wait([asyncio.ensure_future(_ended(life)) for life in lives], return_when=asyncio.FIRST_COMPLETED)
        os._exit(1)

    async def _kill_hung(self, pid: int, limit_s: float) -> None:
        """Kill the engine when a call takes longer than `limit_s`, or when it does not say in that time how long."""
        busy_s = 0.0
        while busy_s <= limit_s:
            await asyncio.sleep(min(limit_s / 4, HUNG_CHECK_S))
            try:
                async with asyncio.timeout(limit_s):
                    busy_s = await self._engine.busy_s.remote()
            except TimeoutError:
                break
            except RayActorError:
                return
        logger.error("the engine in process %d has been busy for over %g s; it is killed", pid, limit_s)
        os.kill(pid, signal.SIGKILL)  # not through Ray, to which a hung process does not listen

    async def lease(self, holder: ActorHandle[Any]) -> AsyncGenerator[Lent | None, None]:
        """Yield the engine, stay open until the holder cancels or dies, and then drop all sequences of the engine.

        If this replica is to stop, it yields None, and waits for the end of the lease. The holder may end it sooner.

        holder: the actor that takes the lease. Its death is watched here: Ray does not cancel a dead actor's calls.
        """
        death = asyncio.create_task(_death(holder))
        try:
            yield Lent(self._engine, self._info)
            while not death.done() and time.monotonic() - self._seen < LEAVING_S:
                await asyncio.wait([death], timeout=HOLDER_CHECK_S)
            if not death.done():
                yield None
            await death
        finally:
            death.cancel()
            with contextlib.suppress(RayActorError):
                await self._engine.release_all.remote()


def _placement(gpus: float, bundle: int) -> dict[str, Any]:
    """Return the options of an actor in one bundle of the replica's placement group."""
    group = PlacementGroupSchedulingStrategy(
        ray.util.get_current_placement_group(), placement_group_bundle_index=bundle
    )
    return {"num_cpus": ENGINE_CPUS, "num_gpus": gpus, "max_restarts": 0, "scheduling_strategy": group}


async def _ended(call: Any) -> None:
    with contextlib.suppress(RayError):
        await call


async def _death(actor: ActorHandle[Any]) -> None:
    """Return when the actor is dead. A busy one only answers late."""
    while True:
        try:
            await actor.__ray_ready__.remote()
        except RayActorError:
            return
        await asyncio.sleep(HOLDER_CHECK_S)
