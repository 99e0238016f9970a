"""The page at `/`: three static files that call only the HTTP API of the server that sends them."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

FILES = {
    "/": ("index.html", "text/html"),
    "/page/page.css": ("page.css", "text/css"),
    "/page/page.js": ("page.js", "text/javascript"),
}
"""Path -> file and media type. The files hold no secrets, so they need no key even if the server has keys."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def add_page(app: FastAPI) -> None:
    """Add the page's routes, which are not part of the API's schema."""
    for path, (name, media_type) in FILES.items():
        content = (Path(__file__).parent / name).read_bytes()
        app.add_route(path, _file(content, media_type), include_in_schema=False)


def _file(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def serve(_: Request) -> Response:
        return Response(content, headers=HEADERS, media_type=media_type)

    return serve
