"""The id of the request that is being served, for log lines and response headers."""

import re
import secrets
from contextvars import ContextVar

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Id of the HTTP or gRPC call that the running task belongs to; None outside a call."""

_ACCEPTED = re.compile(r"[!-~]{1,128}")


def accept_id(given: str | None) -> str:
    """Return the client's own id if it is 1 to 128 printable ASCII characters without spaces, else a new one."""
    return given if given and _ACCEPTED.fullmatch(given) else f"req-{secrets.token_hex(16)}"
