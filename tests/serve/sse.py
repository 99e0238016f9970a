"""Server-sent events, as the HTTP API streams them."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx


async def chunks(response: httpx.Response) -> AsyncIterator[Any]:
    """Every chunk of a stream that ends well."""
    assert response.status_code == 200, await response.aread()
    data = ""
    async for line in response.aiter_lines():
        if line:
            data = line.removeprefix("data: ")
            if data != "[DONE]":
                yield json.loads(data)
    assert data == "[DONE]"
