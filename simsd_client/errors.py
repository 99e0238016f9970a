"""The error that a failed call raises."""

from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

DETAILS_KEY = "grpc-status-details-bin"


class CallError(Exception):
    """A call that failed. The message of the exception is the server's.

    `code` is the gRPC status. `reason` is the server's name for the error, as "CONTEXT_LENGTH_EXCEEDED", `field` is the
    field at fault, and `retry_after_s` the seconds after which to try again. Each of these three may be None.
    """

    def __init__(self, code: grpc.StatusCode, message: str, details: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.reason: str | None = None
        self.field: str | None = None
        self.retry_after_s: float | None = None
        for detail in status_pb2.Status.FromString(details).details:
            self._take(detail)

    def _take(self, detail: Any) -> None:
        info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            self.reason = info.reason
        elif detail.Unpack(bad):
            self.field = bad.field_violations[0].field
        elif detail.Unpack(retry):
            self.retry_after_s = retry.retry_delay.ToTimedelta().total_seconds()


def from_rpc_error(error: grpc.RpcError) -> CallError:
    """Return the `CallError` for a failed call of a stub, sync or asyncio."""
    details = next((value for key, value in error.trailing_metadata() or () if key == DETAILS_KEY), b"")
    return CallError(error.code(), error.details() or error.code().name, details)
