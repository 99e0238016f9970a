"""Middleware around every HTTP request: it sets the request's id and answers errors that nothing else has caught."""

import logging

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.ingress.context import accept_id, request_id
from deployments.ingress.errors import ApiError, to_api_error

logger = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"


class RequestContext:
    """Gives each request an id, returns the id with every response, and answers any error in OpenAI's form.

    proxy_returns_id: Ray Serve's proxy stands in front, which makes ids and returns any id itself. Then only an id that
    replaces one that was not accepted is added here.
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
    """Return the API's form of an error, and log one that is not the client's fault."""
    api_error = to_api_error(error)
    if api_error.status >= 500:
        logger.error("%s: %s %s failed", request_id.get(), request.method, request.url.path, exc_info=error)
    return api_error
