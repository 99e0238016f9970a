"""The gRPC interface: the methods that Serve's gRPC proxy calls on an ingress replica, by the names of the rpcs.

The proxy passes messages on as bytes (`add_services`), so that a message that cannot be parsed is refused here like any
other, and not by the transport. An error becomes the call's status, with details in the form of google.rpc. Serve sends
details only along with a message, so a stream that fails ends with an empty message.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Self

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2
from ray.serve.grpc_util import RayServegRPCContext
from starlette.exceptions import HTTPException

from deployments.ingress.context import accept_id, request_id
from deployments.ingress.environment import ignores_unknown_fields, keys_of
from deployments.ingress.errors import ApiError, to_api_error
from deployments.ingress.messages import (
    Answers,
    MessageT,
    as_in_message,
    generate_body,
    read_message,
    tokenize_body,
)
from deployments.ingress.schemas import ChatRequest
from deployments.ingress.service import ANYONE, Caller, Service
from simsd.errors import RequestError
from simsd.messages.request import Request
from simsd_client.v1 import simsd_pb2

logger = logging.getLogger(__name__)

SERVICE = simsd_pb2.DESCRIPTOR.services_by_name["SimSDService"]
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
SERVED = ("", SERVICE.full_name)
"""Names whose health can be asked for; the empty name is the whole server."""
CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""HTTP status -> gRPC code; any other status is INTERNAL."""
DOMAIN = "simsd.v1"
DETAILS_KEY = "grpc-status-details-bin"
REQUEST_ID_KEY = "x-request-id"
MAX_MESSAGE_BYTES = 1000
"""Limit of an error's message. Trailers may have 8 KB, and carry it three times, once with up to 3 bytes for one."""
HEALTH_TIMEOUT_S = 5.0
WATCH_EVERY_S = 1.0


def add_services(servicer: Any, server: Any) -> None:
    """Add both services and leave their messages as bytes; for `grpc_servicer_functions` of Serve's gRPC options."""
    for service in (SERVICE, HEALTH):
        handlers = {
            method.name: (
                grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
            )(getattr(servicer, method.name))
            for method in service.methods
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
        server.add_registered_method_handlers(service.full_name, handlers)


class GrpcMethods:
    """Mixin of the ingress with one method for each rpc. `message` is the request's bytes; Serve serialises results."""

    def __init__(self, service: Service) -> None:
        """Read keys and leniency from the environment; raises `ConfigError` if they are wrong."""
        self._service = service
        self._keys = keys_of(service.args, os.environ)
        self._lenient = ignores_unknown_fields(os.environ)

    async def Generate(self, message: bytes, grpc_context: RayServegRPCContext) -> simsd_pb2.GenerateResponse:
        response = simsd_pb2.GenerateResponse()
        with Call(grpc_context) as call:
            request = self._request(self._read(call, simsd_pb2.GenerateRequest, message))
            async with aclosing(self._service.outputs([request], call.caller, whole=True)) as outputs:
                response = self._answers(request).whole([output async for _, output in outputs])
        return response

    async def GenerateStream(
        self, message: bytes, grpc_context: RayServegRPCContext
    ) -> AsyncGenerator[simsd_pb2.GenerateStreamResponse, None]:
        with Call(grpc_context) as call:
            asked = self._read(call, simsd_pb2.GenerateStreamRequest, message)
            request = self._request(asked.request, stream=True, events=asked.events)
            answers = self._answers(request)
            async with aclosing(self._service.outputs([request], call.caller)) as outputs:
                async for _, output in outputs:
                    yield answers.part(output)
            return
        yield simsd_pb2.GenerateStreamResponse()  # carries the details of the status

    async def Tokenize(self, message: bytes, grpc_context: RayServegRPCContext) -> simsd_pb2.TokenizeResponse:
        response = simsd_pb2.TokenizeResponse()
        with Call(grpc_context) as call:
            body = tokenize_body(self._read(call, simsd_pb2.TokenizeRequest, message))
            response.token_ids.extend(self._service.tokenize(body))
            response.context_tokens = self._service.card.context_tokens
        return response

    async def ListModels(self, message: bytes, grpc_context: RayServegRPCContext) -> simsd_pb2.ListModelsResponse:
        response = simsd_pb2.ListModelsResponse()
        with Call(grpc_context) as call:
            self._read(call, simsd_pb2.ListModelsRequest, message)
            card = self._service.card
            response.models.add(name=card.name, context_tokens=card.context_tokens, block_size=card.block_size)
        return response

    async def Check(self, message: bytes, grpc_context: RayServegRPCContext) -> health_pb2.HealthCheckResponse:
        """Answer a health check (grpc.health.v1), which needs no key."""
        response = health_pb2.HealthCheckResponse()
        with Call(grpc_context):
            name = self._read_open(health_pb2.HealthCheckRequest, message).service
            if name not in SERVED:
                raise HTTPException(404, f"service {name!r} is not served here; this is {SERVICE.full_name!r}")
            response.status = await self._health()
        return response

    async def List(self, message: bytes, grpc_context: RayServegRPCContext) -> health_pb2.HealthListResponse:
        response = health_pb2.HealthListResponse()
        with Call(grpc_context):
            self._read_open(health_pb2.HealthListRequest, message)
            status = await self._health()
            for name in SERVED:
                response.statuses[name].status = status
        return response

    async def Watch(
        self, message: bytes, grpc_context: RayServegRPCContext
    ) -> AsyncGenerator[health_pb2.HealthCheckResponse, None]:
        """Yield the status at once and whenever it changes, until the client leaves."""
        with Call(grpc_context):
            name = self._read_open(health_pb2.HealthCheckRequest, message).service
            said = None
            while True:
                status = await self._health() if name in SERVED else health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
                if status != said:
                    yield health_pb2.HealthCheckResponse(status=status)
                said = status
                await asyncio.sleep(WATCH_EVERY_S)
        yield health_pb2.HealthCheckResponse()

    def _read(self, call: "Call", kind: type[MessageT], message: bytes) -> MessageT:
        """Return the message of a call that needs a key, after the key is checked."""
        call.caller = Caller(self._keys.check(call.authorization))
        return self._read_open(kind, message)

    def _read_open(self, kind: type[MessageT], message: bytes) -> MessageT:
        return read_message(kind, message, self._service.args.max_body_bytes, self._lenient)

    def _request(self, asked: simsd_pb2.GenerateRequest, stream: bool = False, events: bool = False) -> Request:
        try:
            body = generate_body(asked, stream, events)
            (request,) = self._service.chat(body) if isinstance(body, ChatRequest) else self._service.completion(body)
        except RequestError as error:
            raise as_in_message(error, asked) from error
        return request

    def _answers(self, request: Request) -> Answers:
        card, tokenizer = self._service.card, self._service.tokenizer
        return Answers(request.request_id, card.name, card.block_size, tokenizer.token_bytes)

    async def _health(self) -> health_pb2.HealthCheckResponse.ServingStatus:
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                await self._service.backend.load()
        except Exception:
            return health_pb2.HealthCheckResponse.NOT_SERVING
        return health_pb2.HealthCheckResponse.SERVING


class Call:
    """The context of one call: it sets the call's id, and turns an error inside the block into the call's status."""

    def __init__(self, context: RayServegRPCContext) -> None:
        sent = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        self.authorization = sent.get("authorization")
        self.caller = ANYONE
        self._context, self._id = context, accept_id(sent.get(REQUEST_ID_KEY))

    def __enter__(self) -> Self:
        request_id.set(self._id)  # a call is a task of its own, so it is not reset
        self._context.set_trailing_metadata([(REQUEST_ID_KEY, self._id)])
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        api_error = to_api_error(error)
        if api_error.status >= 500:
            logger.error("call %s failed", self._id, exc_info=error)
        refuse(self._context, api_error, self._id)
        return True


def refuse(context: RayServegRPCContext, error: ApiError, identity: str) -> None:
    """Make the error the call's status: a code, a message, and details in the form of google.rpc."""
    code = CODES.get(error.status, grpc.StatusCode.INTERNAL)
    message = _shortened(error.message)
    details: list[Message] = [error_details_pb2.ErrorInfo(reason=(error.code or "error").upper(), domain=DOMAIN)]
    if error.param is not None:
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.param, description=message)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if retry_after_s := error.headers.get("Retry-After"):
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromSeconds(int(retry_after_s))
        details.append(retry)
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in details:
        status.details.add().Pack(detail)
    context.set_code(code)
    context.set_details(message)
    context.set_trailing_metadata([(REQUEST_ID_KEY, identity), (DETAILS_KEY, status.SerializeToString())])


def _shortened(text: str) -> str:
    raw = text.encode("utf-8", "replace")
    return raw.decode() if len(raw) <= MAX_MESSAGE_BYTES else raw[:MAX_MESSAGE_BYTES].decode(errors="ignore") + "…"
