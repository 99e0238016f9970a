"""Around every HTTP request: its id, and the last resort for errors."""

import logging

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.ingress.context import accept_id, request_id
from deployments.ingress.errors import ApiError, to_api_error

logger = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"


class RequestContext:
    """Gives each request its id, and every response the id and a body in OpenAI's form, whatever was raised.

    `proxy_returns_id`: Ray Serve's proxy stands in front; it makes ids and returns them itself, whatever they look
    like. Then only an id that takes the place of a refused one is added here.
    """

    def __init__(self, app: ASGIApp, proxy_returns_id: bool = False) -> None:
        self._app, self._proxy_returns_id = app, proxy_returns_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID)
        own = accept_id(given)
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if not (self._proxy_returns_id and own == given):
                    MutableHeaders(scope=message)[REQUEST_ID] = own
            await send(message)

        token = request_id.set(own)
        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            api_error = logged(Request(scope), error)
            if started:
                raise
            await api_error.response()(scope, receive, send_with_id)
        finally:
            request_id.reset(token)


def logged(request: Request, error: Exception) -> ApiError:
    """The error's wire form; what is not the client's doing is written to the log."""
    api_error = to_api_error(error)
    if api_error.status >= 500:
        logger.error("%s: %s %s failed", request_id.get(), request.method, request.url.path, exc_info=error)
    return api_error
