"""The HTTP API: its routes read bodies and return answers."""

import asyncio
import json
import math
import os
import time
from typing import TypeVar

from fastapi import APIRouter, Security
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.security import HTTPBearer
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from deployments.ingress.answers import ChatForm, Form, TextForm, events, first_output, prompt_only, whole_answer
from deployments.ingress.environment import ApiKeys, ignores_unknown_fields, keys_of
from deployments.ingress.errors import BodyTooLargeError, from_validation
from deployments.ingress.middleware import RequestContext, logged
from deployments.ingress.openapi import GENERATION, REFUSALS, UNAUTHORIZED, UNAVAILABLE, DescribedApp, gives, takes
from deployments.ingress.page import add_page
from deployments.ingress.replies import (
    ChatChunk,
    ChatCompletion,
    Completion,
    CompletionChunk,
    Detokenized,
    Health,
    ModelEntry,
    ModelList,
    Tokenized,
    Version,
)
from deployments.ingress.schemas import (
    IGNORE_UNKNOWN,
    Body,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    Sampling,
    StreamOptions,
    TokenizeRequest,
)
from deployments.ingress.service import Caller, Service
from simsd import __version__
from simsd.errors import RequestError, SimSDError

HEALTH_TIMEOUT_S = 5.0
TIMEOUT_HEADER = "x-request-timeout"
"""Header with the seconds that the client will wait for the end of the answer."""

BodyT = TypeVar("BodyT", bound=Body)


def build_http(service: Service, proxy_returns_id: bool = False) -> DescribedApp:
    """Build the app over a service. All errors are answered in OpenAI's form.

    proxy_returns_id: see `RequestContext`. Keys and leniency are read from the environment; raises `ConfigError` if
    they are wrong.
    """
    app = DescribedApp(title="SimSD Serve", version=__version__)
    app.add_middleware(RequestContext, proxy_returns_id=proxy_returns_id)
    for kind in (SimSDError, HTTPException):
        app.add_exception_handler(kind, _on_error)
    _add_open_routes(app, service)
    add_page(app)
    keys = keys_of(service.args, os.environ)
    app.include_router(_api(service, keys, ignores_unknown_fields(os.environ)))
    return app


def _add_open_routes(app: DescribedApp, service: Service) -> None:
    """Add the routes that need no key."""

    @app.get("/health", responses=UNAVAILABLE)
    async def health() -> Health:
        async with asyncio.timeout(HEALTH_TIMEOUT_S):
            running, waiting = await service.backend.load()
        return Health(running=running, waiting=waiting)

    @app.get("/version")
    async def version() -> Version:
        return Version(version=__version__)


def _api(service: Service, keys: ApiKeys, ignore_unknown: bool) -> APIRouter:
    """Return the routes that need a key, if the server has any."""
    bearer = Security(HTTPBearer(auto_error=False, description="one of the server's keys"))  # shown in the schema

    async def check_key(request: HttpRequest) -> None:
        request.state.key = keys.check(request.headers.get("authorization"))

    api = APIRouter(dependencies=[bearer, Security(check_key)] if keys else [], responses=UNAUTHORIZED if keys else {})
    card = service.card
    entry = ModelEntry(id=card.name, created=int(time.time()), max_model_len=card.context_tokens)

    async def read(request: HttpRequest, schema: type[BodyT]) -> BodyT:
        return await read_body(request, schema, service.args.max_body_bytes, ignore_unknown)

    @api.get("/v1/models")
    async def models() -> ModelList:
        return ModelList(data=[entry])

    @api.get("/v1/models/{name:path}", responses={404: REFUSALS[404]})
    async def model(name: str) -> ModelEntry:
        service.check_model(name)
        return entry

    @api.post(
        "/v1/chat/completions",
        openapi_extra=takes(ChatRequest),
        responses=gives(ChatCompletion, ChatChunk) | GENERATION,
    )
    async def chat(request: HttpRequest) -> Response:
        body = await read(request, ChatRequest)
        return await _answer(service, ChatForm(service, service.chat(body), body), body, caller_of(request))

    @api.post(
        "/v1/completions",
        openapi_extra=takes(CompletionRequest),
        responses=gives(Completion, CompletionChunk) | GENERATION,
    )
    async def completions(request: HttpRequest) -> Response:
        body = await read(request, CompletionRequest)
        form = TextForm(service, service.completion(body), body)
        return await _answer(service, form, body, caller_of(request), echo_only=body.max_tokens == 0)

    @api.post("/tokenize", openapi_extra=takes(TokenizeRequest), responses=REFUSALS)
    async def tokenize(request: HttpRequest) -> Tokenized:
        body = await read(request, TokenizeRequest)
        ids = service.tokenize(body)
        names = [service.tokenizer.token_name(token_id) or "" for token_id in ids] if body.return_token_strs else None
        return Tokenized(count=len(ids), max_model_len=card.context_tokens, tokens=ids, token_strs=names)

    @api.post("/detokenize", openapi_extra=takes(DetokenizeRequest), responses=REFUSALS)
    async def detokenize(request: HttpRequest) -> Detokenized:
        return Detokenized(prompt=service.detokenize(await read(request, DetokenizeRequest)))

    return api


async def read_body(request: HttpRequest, schema: type[BodyT], limit: int, ignore_unknown: bool = False) -> BodyT:
    """Parse and check a JSON body, whatever its content type, since that of `curl -d` is a form's.

    Raises `RequestError`, which names the field at fault, or `BodyTooLargeError` beyond `limit` bytes.
    """
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > limit:
            raise BodyTooLargeError(f"the body is larger than {limit} bytes")
    try:
        data = json.loads(raw)
        if b"\\ud" in raw.lower():  # half of a surrogate pair is not text: UTF-8 cannot encode it
            json.dumps(data, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise RequestError(f"the body must be a JSON object, not a {type(data).__name__}")
    try:
        return schema.model_validate(data, context={IGNORE_UNKNOWN: ignore_unknown})
    except ValidationError as error:
        raise from_validation(error) from error


def caller_of(request: HttpRequest) -> Caller:
    """Return the caller by its key and headers; raises `RequestError` if its timeout is not a number above 0."""
    given = request.headers.get(TIMEOUT_HEADER)
    timeout_s = None
    if given is not None:
        try:
            timeout_s = float(given)
        except ValueError:
            timeout_s = math.nan
        if not 0 < timeout_s < math.inf:
            raise RequestError(f"{TIMEOUT_HEADER} must be a number of seconds above 0; got {given!r}", TIMEOUT_HEADER)
    return Caller(getattr(request.state, "key", None), timeout_s)


async def _answer(service: Service, form: Form, body: Sampling, caller: Caller, echo_only: bool = False) -> Response:
    outputs = service.outputs(form.requests, caller, whole=not body.stream)
    if echo_only:
        outputs = prompt_only(outputs)
    if not body.stream:
        return JSONResponse(await whole_answer(form, outputs))
    first = await first_output(outputs)
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        events(form, first, outputs, body.stream_options or StreamOptions()),
        media_type="text/event-stream",
        headers=headers,
    )


async def _on_error(request: HttpRequest, error: Exception) -> JSONResponse:
    if isinstance(error, HTTPException) and (error.status_code, error.detail) == (404, "Not Found"):
        error = HTTPException(404, f"no such path: {request.method} {request.url.path}")
    return logged(request, error).response()
