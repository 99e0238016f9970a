"""The coordinator: it leases one draft and one target engine, and runs the block loop over them."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.serve.handle import DeploymentHandle

from deployments.args import ServeArgs
from deployments.gather import gather
from deployments.lease import EngineClient, take_lease, take_pair
from deployments.logs import join_serve, log_end
from deployments.metrics import Exporter, RequestRecord
from deployments.tracing import Carrier, LoopTracing, Tracing
from simsd.errors import SimSDError, WorkerLostError
from simsd.loop.loop import Loop
from simsd.messages.request import Output, Request
from simsd.messages.worker import PageUse, Role
from simsd.models.files import resolve_model
from simsd.tokens.tokenizer import Tokenizer

STAYS_S = 5.0
"""Serve has checked this replica's health within this time: the replica is not about to stop."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What front ends need to know about the served model. `context_tokens` bounds prompt and answer together."""

    name: str
    block_size: int
    mask_token_id: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class EngineState:
    """The state of one engine, for operators and tests."""

    pid: int
    pages: PageUse


class Coordinator:
    """A Serve deployment. A replica is ready once it holds its leases, and serves until it is stopped.

    Expected errors are values of the stream: Ray would wrap exceptions in its own and add a traceback.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, args: ServeArgs, target: DeploymentHandle[Any], draft: DeploymentHandle[Any] | None
    ) -> None:
        join_serve()
        self._args = args
        self._servers: dict[Role, DeploymentHandle[Any]] = {"target": target}
        if draft is not None:
            self._servers["draft"] = draft
        self._clients = await take_pair({role: partial(self._lease, role) for role in self._servers})
        mask_token_id = self._clients["target"].info.mask_token_id
        tokenizer = Tokenizer.load(resolve_model(args.target, "target"), mask_token_id)
        self._loop = Loop(
            self._clients["target"], self._clients.get("draft"), tokenizer, args.loop_config(), self._replace
        )
        tracing = Tracing.from_environment()
        self._tracing = LoopTracing(tracing) if tracing else None
        self._loop.on_round = self._tracing.round if self._tracing else None
        self._exporter = Exporter(self._loop, self._page_use)
        self._tasks = {asyncio.create_task(self._loop.run()), asyncio.create_task(self._exporter.run())}
        self._seen = time.monotonic()
        for role, client in self._clients.items():
            self._watch(role, client)

    async def check_health(self) -> None:
        """Note that Serve has checked this replica; Serve calls it."""
        self._seen = time.monotonic()

    async def generate(
        self, request: Request, carrier: Carrier | None = None
    ) -> AsyncGenerator[Output | SimSDError, None]:
        """Stream a request's outputs, or the error that ends it. Cancelling frees its pages in both engines.

        carrier: the context of the trace that the request belongs to.
        """
        record = RequestRecord(request)
        if self._tracing:
            self._tracing.begin(record, carrier)
        try:
            async with aclosing(self._loop.generate(request)) as outputs:
                async for output in gather(outputs, request.stream_interval, record.see):
                    yield output
        except SimSDError as error:
            record.fail(error)
            yield error
        finally:
            self._exporter.ended(record)
            log_end(record)
            if self._tracing:
                self._tracing.ended(record)

    def card(self) -> ModelCard:
        infos = [client.info for client in self._clients.values()]
        context_tokens = min(min(info.max_model_len, info.pages * info.page_size) for info in infos)
        return ModelCard(self._args.model_name, infos[0].block_size, infos[0].mask_token_id, context_tokens)

    def load(self) -> tuple[int, int]:
        """Return the numbers of (running, waiting) requests."""
        return self._loop.load()

    async def engines(self) -> dict[Role, EngineState]:
        """Return the state of each engine."""
        return {
            role: EngineState(await client.pid(), await client.page_use()) for role, client in self._clients.items()
        }

    async def _page_use(self) -> dict[Role, PageUse]:
        """Return the page use of engines that live. It skips the integrity check, whose time grows with the pool."""
        found: dict[Role, PageUse] = {}
        for role, client in self._clients.items():
            with suppress(RayActorError):  # the loop will notice the loss and replace the engine
                found[role] = await client.page_use(check=False)
        return found

    async def _lease(self, role: Role) -> EngineClient:
        holder = ray.get_runtime_context().current_actor
        return await take_lease(self._servers[role], role, holder, self._args.lease_timeout_s)

    async def _replace(self, role: Role) -> EngineClient:
        """Lease another engine in place of a lost one.

        This process ends if no engine is free within `lease_timeout_s`, or if the new one has another model. The pair's
        other engine is then free for a coordinator that lacks one, and other coordinators answer the requests.
        """
        self._clients[role].end()
        try:
            client = await self._lease(role)
        except WorkerLostError as error:
            logger.error("%s; this coordinator gives up", error)
            os._exit(1)
        if client.info != self._clients[role].info:
            logger.error("the %s has become another model; this coordinator gives up what it had begun", role)
            os._exit(1)
        self._clients[role] = client
        self._watch(role, client)
        return client

    def _watch(self, role: Role, client: EngineClient) -> None:
        task = asyncio.create_task(self._change(role, client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _change(self, role: Role, client: EngineClient) -> None:
        """Change to an idle engine when the leased one is to stop: on scaling down, Serve may stop one that is lent.

        A coordinator that is itself to stop keeps its engines, which wait for its streams.
        """
        if await client.leaving() and time.monotonic() - self._seen < STAYS_S:
            self._loop.change(role)
