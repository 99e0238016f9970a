"""The ingress as a Serve deployment: the HTTP app and the gRPC methods in front of the coordinators."""

from collections.abc import AsyncGenerator
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.exceptions import ObjectLostError, RayActorError
from ray.serve.handle import DeploymentHandle

from deployments.args import ServeArgs
from deployments.ingress.errors import CoordinatorLostError
from deployments.ingress.grpc import GrpcMethods
from deployments.ingress.http import build_http
from deployments.ingress.service import Service
from deployments.logs import join_serve
from deployments.tracing import TraceRequests, Tracing
from simsd.errors import SimSDError
from simsd.messages.request import Output, Request
from simsd.models.files import resolve_model
from simsd.tokens.tokenizer import Tokenizer


class Coordinators:
    """The coordinators behind their Serve handle, as a `Backend`."""

    def __init__(self, handle: DeploymentHandle[Any], tracing: Tracing | None = None) -> None:
        self._handle, self._tracing = handle, tracing

    async def generate(self, request: Request) -> AsyncGenerator[Output, None]:
        carrier = self._tracing.carrier() if self._tracing else None
        stream: Any = self._handle.options(stream=True).generate.remote(request, carrier)
        try:
            async for item in stream:
                if isinstance(item, SimSDError):
                    raise item
                yield item
        except (RayActorError, ObjectLostError) as error:  # the loss of a whole node loses its outputs too
            raise CoordinatorLostError(f"the coordinator of {request.request_id} is gone") from error
        finally:
            stream.cancel()  # does nothing to a stream that has ended

    async def load(self) -> tuple[int, int]:
        return await self._handle.load.remote()


@serve.ingress()
class Ingress(GrpcMethods):
    """A Serve deployment. It is ready once a coordinator is, since it first asks one for the model's card."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, args: ServeArgs, coordinators: DeploymentHandle[Any]
    ) -> None:
        join_serve()
        self._tracing = Tracing.from_environment()
        card = await coordinators.card.remote()
        tokenizer = Tokenizer.load(resolve_model(args.target, "target"), card.mask_token_id)
        super().__init__(Service(args, card, tokenizer, Coordinators(coordinators, self._tracing)))

    def __serve_build_asgi_app__(self) -> FastAPI:
        app = build_http(self._service, proxy_returns_id=True)
        if self._tracing:
            app.add_middleware(TraceRequests, tracing=self._tracing)
        return app
