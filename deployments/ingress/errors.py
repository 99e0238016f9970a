"""Errors in the form that OpenAI's clients expect: a status, and {"error": {"message", "type", "param", "code"}}."""

from dataclasses import dataclass, field
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import ValidationError
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from starlette.exceptions import HTTPException

from simsd.errors import CheckpointError, ContextLengthError, QueueFullError, RequestError, SimSDError, WorkerLostError

UNAVAILABLE_RETRY_S = 5
KEY_RETRY_S = 1
MAX_SHOWN_CHARS = 60


class ModelNotFoundError(SimSDError):
    """A request named a model that is not served here (404)."""


class BodyTooLargeError(SimSDError):
    """A request body is over the limit (413)."""


class UnauthorizedError(SimSDError):
    """The server asks for a key, and the request has none that it knows (401)."""


class KeyLimitError(SimSDError):
    """A key has reached its limit of requests under way (429)."""


class DeadlineError(SimSDError):
    """The answer was not complete in the time that the client or the server allows (504)."""


class CoordinatorLostError(SimSDError):
    """A request's coordinator died; another one would give the same answer from its beginning (503)."""


UNAVAILABLE = (
    CoordinatorLostError,
    WorkerLostError,
    RayActorError,
    BackPressureError,
    DeploymentUnavailableError,
    TimeoutError,
)
"""Errors that pass: another coordinator or engine, or the same a little later, can answer."""


@dataclass(frozen=True, slots=True)
class ApiError:
    """An error as it is sent to the client."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        param = None if self.param is None else _printable(self.param)
        return {"error": {"message": _printable(self.message), "type": self.type, "param": param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), status_code=self.status, headers=self.headers)


def to_api_error(error: Exception) -> ApiError:
    """Return the API's form of any error that a request meets. An unexpected one reveals nothing of the server."""
    match error:
        case RayTaskError(cause=Exception() as cause) if isinstance(cause, SimSDError | RayActorError):
            return to_api_error(cause)
        case ContextLengthError():
            return ApiError(400, str(error), param=error.param, code="context_length_exceeded")
        case RequestError():
            return ApiError(400, str(error), param=error.param, code="invalid_value")
        case ModelNotFoundError():
            return ApiError(404, str(error), param="model", code="model_not_found")
        case BodyTooLargeError():
            return ApiError(413, str(error), code="request_too_large")
        case UnauthorizedError():
            return ApiError(401, str(error), code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        case QueueFullError():
            headers = {"Retry-After": str(max(1, round(error.retry_after_s)))}
            return ApiError(429, str(error), "rate_limit_error", code="queue_full", headers=headers)
        case KeyLimitError():
            headers = {"Retry-After": str(KEY_RETRY_S)}
            return ApiError(429, str(error), "rate_limit_error", code="rate_limit_exceeded", headers=headers)
        case CheckpointError():  # at run time this is a chat template that fails
            return ApiError(500, str(error), "server_error", code="checkpoint_error")
        case DeadlineError():
            return ApiError(504, str(error), "server_error", code="deadline_exceeded")
        case _ if isinstance(error, UNAVAILABLE):
            message = "the model is not available at the moment; try again"
            headers = {"Retry-After": str(UNAVAILABLE_RETRY_S)}
            return ApiError(503, message, "server_error", code="unavailable", headers=headers)
        case HTTPException():
            code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
            return ApiError(error.status_code, str(error.detail), code=code, headers=dict(error.headers or {}))
        case _:
            return ApiError(500, "internal error", "server_error", code="internal_error")


def from_validation(error: ValidationError) -> RequestError:
    """Return the first fault of a body, with the field as the client spelled it and the value that it sent."""
    first = error.errors(include_url=False)[0]
    param = field_path(first["loc"])
    message = first["msg"][:1].lower() + first["msg"][1:]
    if isinstance(first["input"], str | int | float):
        shown = repr(first["input"])
        message += f"; got {shown if len(shown) <= MAX_SHOWN_CHARS else shown[:MAX_SHOWN_CHARS] + '…'}"
    return RequestError(f"{param}: {message}" if param else message, param or None)


def field_path(location: tuple[int | str, ...]) -> str:
    """("messages", 0, "role") -> "messages[0].role"; names of union branches, which are not fields, are left out."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in ("str", "int", "float"):
            path += f".{part}" if path else part
    return path


def _printable(text: str) -> str:
    """Replace what UTF-8 cannot encode: JSON may bring in half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()
