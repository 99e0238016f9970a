"""The HTTP API: routes, bodies in, answers out."""

import asyncio
import json
import logging
import time
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from deployments.ingress.answers import ChatForm, TextForm, events, first_output, whole_answer
from deployments.ingress.errors import BodyTooLargeError, from_validation, to_api_error
from deployments.ingress.schemas import Body, ChatRequest, CompletionRequest, ModelEntry, ModelList, Sampling
from deployments.ingress.service import Service
from simsd import __version__
from simsd.errors import RequestError, SimSDError

logger = logging.getLogger(__name__)

HEALTH_TIMEOUT_S = 5.0

BodyT = TypeVar("BodyT", bound=Body)


def build_http(service: Service) -> FastAPI:
    """The FastAPI app over a service; everything that it raises leaves in OpenAI's error form."""
    app = FastAPI(title="SimSD Serve", version=__version__)
    started = int(time.time())
    limit = service.args.max_body_bytes

    @app.get("/health")
    async def health() -> dict[str, Any]:
        async with asyncio.timeout(HEALTH_TIMEOUT_S):
            running, waiting = await service.backend.load()
        return {"status": "ok", "running": running, "waiting": waiting}

    @app.get("/v1/models")
    async def models() -> ModelList:
        return ModelList(data=[ModelEntry(id=service.card.name, created=started)])

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> ModelEntry:
        if name != service.card.name:
            raise HTTPException(404, f"model {name!r} is not served here; this is {service.card.name!r}")
        return ModelEntry(id=name, created=started)

    @app.post("/v1/chat/completions", openapi_extra=_documented(ChatRequest))
    async def chat(http_request: HttpRequest) -> Response:
        body = await read_body(http_request, ChatRequest, limit)
        return await _answer(service, ChatForm(service.card.name, service.chat(body)), body)

    @app.post("/v1/completions", openapi_extra=_documented(CompletionRequest))
    async def completions(http_request: HttpRequest) -> Response:
        body = await read_body(http_request, CompletionRequest, limit)
        return await _answer(service, TextForm(service.card.name, service.completion(body)), body)

    for kind in (SimSDError, HTTPException, Exception):
        app.add_exception_handler(kind, _on_error)
    return app


async def read_body(request: HttpRequest, schema: type[BodyT], limit: int) -> BodyT:
    """Parse and check a JSON body, whatever content type it claims: curl -d claims a form.

    `RequestError` names the field at fault; `BodyTooLargeError` beyond `limit` bytes.
    """
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > limit:
            raise BodyTooLargeError(f"the body is larger than {limit} bytes")
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise RequestError(f"the body must be a JSON object, not a {type(data).__name__}")
    try:
        return schema.model_validate(data)
    except ValidationError as error:
        raise from_validation(error) from error


async def _answer(service: Service, form: ChatForm, body: Sampling) -> Response:
    outputs = service.backend.generate(form.request)
    if not body.stream:
        return JSONResponse(await whole_answer(form, outputs))
    include_usage = body.stream_options is not None and body.stream_options.include_usage
    first = await first_output(outputs)
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        events(form, first, outputs, include_usage), media_type="text/event-stream", headers=headers
    )


async def _on_error(request: HttpRequest, error: Exception) -> JSONResponse:
    api_error = to_api_error(error)
    if api_error.status == 404 and api_error.code == "not_found" and api_error.message == "Not Found":
        return to_api_error(HTTPException(404, f"no such path: {request.method} {request.url.path}")).response()
    if api_error.status >= 500:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return api_error.response()


def _documented(schema: type[Body]) -> dict[str, Any]:
    """The body's schema for /docs: the routes read bodies themselves, so FastAPI cannot see it."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema.model_json_schema()}}}}
