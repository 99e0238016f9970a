"""The API's description at /openapi.json: which bodies the routes take, and which they return."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from deployments.ingress.replies import ChatChunk, Chunk, CompletionChunk, ErrorBody
from deployments.ingress.schemas import Body, ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest

REFERENCE = "#/components/schemas/{model}"
BODIES: tuple[type[BaseModel], ...] = (ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest)
CHUNKS: tuple[type[BaseModel], ...] = (ChatChunk, CompletionChunk)

Responses = dict[int | str, dict[str, Any]]

UNAVAILABLE: Responses = {503: {"model": ErrorBody, "description": "no pair is available; Retry-After says when"}}
REFUSALS: Responses = {
    400: {"model": ErrorBody, "description": "the body cannot be served; `param` names the field"},
    404: {"model": ErrorBody, "description": "no such model"},
    413: {"model": ErrorBody, "description": "the body is too large"},
}
GENERATION: Responses = REFUSALS | {
    429: {
        "model": ErrorBody,
        "description": "the queue is full, or the key at its limit; Retry-After says when",
    },
    500: {"model": ErrorBody, "description": "a fault of the server"},
    **UNAVAILABLE,
    504: {"model": ErrorBody, "description": "no answer in the time that the client or the server allows"},
}
UNAUTHORIZED: Responses = {401: {"model": ErrorBody, "description": "no key, or not one of the server's"}}


class DescribedApp(FastAPI):
    """A FastAPI app whose description includes the bodies that the routes parse themselves."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = get_openapi(
                title=self.title, version=self.version, description=self.description, routes=self.routes
            )
            inputs = models_json_schema([(body, "validation") for body in BODIES], ref_template=REFERENCE)
            chunks = models_json_schema([(chunk, "serialization") for chunk in CHUNKS], ref_template=REFERENCE)
            schemas = document["components"]["schemas"]
            for _, definitions in (inputs, chunks):
                schemas |= definitions["$defs"]
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)  # FastAPI's own refusal, which is never sent: ours are 400
            self.openapi_schema = document
        return self.openapi_schema


def takes(body: type[Body]) -> dict[str, Any]:
    """Return the part of an operation that describes its request body."""
    schema = {"$ref": REFERENCE.format(model=body.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def gives(whole: type[BaseModel], chunk: type[Chunk]) -> Responses:
    """Return the responses of an operation that streams on request."""
    said = {"anyOf": [{"$ref": REFERENCE.format(model=model.__name__)} for model in (chunk, ErrorBody)]}
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": said}
    event = {
        "type": "object",
        "description": "one server-sent event; the last is [DONE], or an error",
        "properties": {"data": {"anyOf": [{"const": "[DONE]"}, data]}},
        "required": ["data"],
    }
    return {200: {"model": whole, "content": {"text/event-stream": {"schema": event}}, "description": "the answer"}}
