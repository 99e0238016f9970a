"""Both engines of a pair, or neither for long."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayActorError

from deployments import lease
from deployments.lease import take_lease, take_pair
from simsd.errors import WorkerLostError
from simsd.messages.worker import Role


class Engine:
    """A lease on one of a role's engines."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free

    def end(self) -> None:
        self._free.release()


class Engines:
    """So many engines of each role, lent in the order in which they are asked for."""

    def __init__(self, **count: int) -> None:
        self.free = {role: asyncio.Semaphore(count) for role, count in count.items()}

    async def lease(self, role: str) -> Any:
        await self.free[role].acquire()
        return Engine(self.free[role])

    def pair(self) -> asyncio.Task[dict[Role, Any]]:
        leases: Any = {role: lambda role=role: self.lease(role) for role in self.free}
        return asyncio.create_task(take_pair(leases))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "HOLD_S", 0.05)
    monkeypatch.setattr(lease, "APART_S", 0.01)


async def test_both_are_asked_for_at_once() -> None:
    engines = Engines(target=1, draft=1)
    assert (await engines.pair()).keys() == {"target", "draft"}
    assert all(semaphore.locked() for semaphore in engines.free.values())


async def test_an_engine_without_its_mate_is_given_to_who_needs_it() -> None:
    """Two targets, one draft: a running coordinator has the draft and loses its target, a new one has taken the last.

    Each would wait for what the other holds.
    """
    engines = Engines(target=1, draft=1)
    running = await engines.lease("draft")
    starting = engines.pair()
    await asyncio.sleep(0.02)
    assert engines.free["target"].locked(), "the new one holds it"
    async with asyncio.timeout(1):
        target = await engines.lease("target")
    assert not starting.done()
    target.end()
    running.end()
    async with asyncio.timeout(1):
        assert (await starting).keys() == {"target", "draft"}


async def test_who_is_alone_gets_it_again() -> None:
    engines = Engines(target=1, draft=0)
    starting = engines.pair()
    await asyncio.sleep(0.15)
    engines.free["draft"].release()
    async with asyncio.timeout(1):
        assert (await starting).keys() == {"target", "draft"}


async def test_an_error_ends_the_other_request_too() -> None:
    async def fails() -> Any:
        await asyncio.sleep(0.02)
        raise WorkerLostError("none", "draft")

    async def waits() -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    gone = asyncio.Event()
    with pytest.raises(WorkerLostError, match="none"):
        await take_pair({"draft": fails, "target": waits})
    async with asyncio.timeout(1):
        await gone.wait()


class Server:
    """A deployment that lends one engine at a time; what it lends first cannot be used."""

    deployment_name = "TargetServer"

    def __init__(self, fault: Exception) -> None:
        self.fault: Exception | None = fault
        self.lent = 0

    def options(self, stream: bool) -> "Server":
        assert stream
        return self

    @property
    def lease(self) -> "Server":
        return self

    def remote(self, holder: Any) -> "Server":
        self.lent += 1
        return self

    def cancel(self) -> None:
        self.lent -= 1

    async def __anext__(self) -> Any:
        fault, self.fault = self.fault, None
        if fault:
            raise fault
        return SimpleNamespace(info=None, engine=SimpleNamespace(pid=SimpleNamespace(remote=self._pid)))

    async def _pid(self) -> int:
        return 1


async def test_a_lease_that_cannot_be_used_is_given_back() -> None:
    """Else the engine is lent for as long as the coordinator lives, and nobody gets one."""
    server: Any = Server(RayActorError())
    holder: Any = None
    await take_lease(server, "target", holder, 5.0)
    assert server.lent == 1
    server = Server(AttributeError("what it says of itself is of another version"))
    with pytest.raises(AttributeError):
        await take_lease(server, "target", holder, 5.0)
    assert server.lent == 0
