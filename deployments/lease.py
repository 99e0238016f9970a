"""The coordinator's side of engines: takes a lease, calls the engine, tells which engine was lost."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from deployments.engine import Lent
from simsd.errors import InternalError, SimSDError, WorkerLostError
from simsd.messages.round import Ahead, Proposals, Verdicts, Work
from simsd.messages.worker import PageUse, Role, WorkerInfo

RETRY_S = 0.2
HOLD_S = 10.0
"""How long an engine is held while no engine of the other role is free."""
APART_S = 2.0
"""How long it is then given back. Routers look for a free replica every 0.5 s, so another coordinator can take it."""


class EngineClient:
    """One leased engine, as the loop's draft or target client. Calls go straight to the actor."""

    queues = True

    def __init__(self, role: Role, lent: Lent, stream: Any) -> None:
        """`stream` is the open `lease` call. It is kept, and cancelled to give the engine back."""
        self.role = role
        self.info: WorkerInfo = lent.info
        self._engine = lent.engine
        self._stream = stream

    def propose(self, batch: list[Work]) -> "ObjectRef[Proposals]":
        """Return a reference at once. The proposals themselves go to the target's engine, not through this process."""
        return self._engine.propose.remote(batch)

    def propose_ahead(self, batch: list[Work], taken: list[Work]) -> "ObjectRef[Ahead | None]":
        return self._engine.propose_ahead.remote(batch, taken)

    def verify(self, batch: list[Work], proposals: "ObjectRef[Proposals] | None") -> "asyncio.Future[Verdicts]":
        """Verify; the future raises `WorkerLostError`, or `InternalError` for a fault inside either engine."""
        return asyncio.ensure_future(self._result(self._engine.verify.remote(batch, proposals)))

    def verify_next(self, ahead: "ObjectRef[Ahead | None] | None") -> "asyncio.Future[Verdicts | None]":
        return asyncio.ensure_future(self._result(self._engine.verify_next.remote(ahead)))

    async def _result(self, ref: "ObjectRef[Any]") -> Any:
        try:
            return await ref
        except RayError as error:
            raise self._translate(error) from error

    def release(self, seq_ids: list[str]) -> None:
        self._engine.release.remote(seq_ids)

    async def page_use(self, check: bool = True) -> PageUse:
        return await self._engine.page_use.remote(check)

    async def pid(self) -> int:
        return await self._engine.pid.remote()

    async def leaving(self) -> bool:
        """Wait, and return True when the engine's replica is to stop, or False if the lease ends before that."""
        try:
            await anext(self._stream)
        except (RayError, RayServeException, StopAsyncIteration):
            return False
        return True

    def end(self) -> None:
        """Give the engine back. It may be dead already."""
        self._stream.cancel()

    def _translate(self, error: RayError) -> SimSDError:
        """Return what went wrong in a call: the loss of an engine, with its role, or a fault inside one."""
        cause = error.cause if isinstance(error, RayTaskError) else error
        if isinstance(cause, RayActorError):
            # Ray names the actor that is gone, even if that is the draft, for whose proposals this call waited.
            lost: Role = "target" if cause.actor_id in (None, self._engine._actor_id.hex()) else "draft"
            return WorkerLostError(f"the {lost}'s engine is gone", lost)
        if isinstance(error, RayTaskError):
            return cause if isinstance(cause, SimSDError) else InternalError(f"in an engine: {cause!r}")
        # The proposals were lost on their way, since their owner or its node is gone.
        return WorkerLostError(f"the draft's proposals are gone: {type(error).__name__}", "draft")


async def take_pair(leases: Mapping[Role, Callable[[], Awaitable[EngineClient]]]) -> dict[Role, EngineClient]:
    """Take one engine of each role. They are asked for at the same time, so that both roles scale up together.

    An engine that is held while the other is missing may be the one that another coordinator lacks, and the two would
    wait for each other without end. So it is given back for a while, and asked for again.
    """
    asked = {role: asyncio.ensure_future(lease()) for role, lease in leases.items()}
    try:
        while True:
            await asyncio.wait(asked.values(), return_when=asyncio.FIRST_COMPLETED)
            _, missing = await asyncio.wait(asked.values(), timeout=HOLD_S)
            if not missing:
                return {role: task.result() for role, task in asked.items()}
            for role, task in asked.items():
                if task.done():
                    task.result().end()
                    asked[role] = asyncio.ensure_future(_later(leases[role]))
    except BaseException:
        for task in asked.values():
            if not task.cancel() and task.exception() is None:
                task.result().end()
        raise


async def _later(lease: Callable[[], Awaitable[EngineClient]]) -> EngineClient:
    await asyncio.sleep(APART_S)
    return await lease()


async def take_lease(
    server: DeploymentHandle[Any], role: Role, holder: ActorHandle[Any], timeout_s: float
) -> EngineClient:
    """Wait for a free engine of `server`; raises `WorkerLostError` after `timeout_s` seconds without one.

    holder: the actor that takes the lease, usually the caller's; the lease ends when it dies.
    """
    deadline = time.monotonic() + timeout_s
    last: BaseException | None = None
    while (left := deadline - time.monotonic()) > 0:
        stream: Any = server.options(stream=True).lease.remote(holder)
        try:
            async with asyncio.timeout(left):
                lent: Lent = await anext(stream)
                client = EngineClient(role, lent, stream)
                await client.pid()  # a replica whose engine has just died may still lend it
            return client
        except (RayError, RayServeException, StopAsyncIteration) as error:
            last = error
            _give_back(stream)
            await asyncio.sleep(RETRY_S)
        except TimeoutError as error:
            last = error
            _give_back(stream)
        except BaseException:
            _give_back(stream)
            raise
    reason = f"; the last try ended in {type(last).__name__}" if last and not isinstance(last, TimeoutError) else ""
    raise WorkerLostError(
        f"no {role} engine could be leased within {timeout_s:g} s: {server.deployment_name} has no free replica"
        f"{reason}; see its logs, or raise lease_timeout_s",
        role,
    )


def _give_back(stream: Any) -> None:
    """End a lease that failed: else the engine would stay lent, unused, for as long as its holder lives."""
    with contextlib.suppress(Exception):
        stream.cancel()
