"""Every error that this package raises on purpose.

SimSDError
├── ConfigError          a setting is unknown, out of range, or contradicts another
├── CheckpointError      files of a model are missing, malformed or of an unknown architecture
├── PairMismatchError    draft and target cannot work together
├── RequestError         what a client sent cannot be served (HTTP 400)
│   └── ContextLengthError   the request can never fit the model's context or the page pool
├── QueueFullError       the request can be served later (HTTP 429, Retry-After)
├── WorkerLostError      a worker died; its sequences can be rebuilt from their tokens
└── InternalError        an invariant of this package is broken, which is a bug
"""


class SimSDError(Exception):
    """The root of the tree."""


class ConfigError(SimSDError):
    pass


class CheckpointError(SimSDError):
    pass


class PairMismatchError(SimSDError):
    pass


class RequestError(SimSDError):
    """A request cannot be served. `param` names the field at fault, as the client spelled it."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param

    def __reduce__(self) -> tuple[type, tuple[str, str | None]]:
        return type(self), (str(self), self.param)


class ContextLengthError(RequestError):
    pass


class QueueFullError(SimSDError):
    """The queue is full. `retry_after_s` says after how many seconds the client may try again."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[type, tuple[str, float]]:
        return type(self), (str(self), self.retry_after_s)


class WorkerLostError(SimSDError):
    """A worker died. `worker` is its role, "draft" or "target"."""

    def __init__(self, message: str, worker: str) -> None:
        super().__init__(message)
        self.worker = worker

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (str(self), self.worker)


class InternalError(SimSDError):
    pass
