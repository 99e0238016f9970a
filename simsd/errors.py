"""Every error this package raises on purpose.

SimSDError
├── ConfigError          a setting is unknown, out of range, or contradicts another
├── CheckpointError      files of a model are missing, malformed or of an unknown architecture
├── PairMismatchError    draft and target cannot work together
├── RequestError         what a client sent cannot be served (HTTP 400)
│   └── ContextLengthError   it would never fit the model's context or the page pool
├── QueueFullError       it could be served later (HTTP 429, Retry-After)
├── WorkerLostError      an engine died; its sequences can be rebuilt from their tokens
└── InternalError        an invariant of ours broke
"""


class SimSDError(Exception):
    """Root of the tree."""


class ConfigError(SimSDError):
    pass


class CheckpointError(SimSDError):
    pass


class PairMismatchError(SimSDError):
    pass


class RequestError(SimSDError):
    """`param` names the field at fault, as the client spelled it."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param

    def __reduce__(self) -> tuple[type, tuple[str, str | None]]:
        return type(self), (str(self), self.param)


class ContextLengthError(RequestError):
    pass


class QueueFullError(SimSDError):
    """`retry_after_s` is a hint in seconds."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[type, tuple[str, float]]:
        return type(self), (str(self), self.retry_after_s)


class WorkerLostError(SimSDError):
    """`worker` is "draft" or "target"."""

    def __init__(self, message: str, worker: str) -> None:
        super().__init__(message)
        self.worker = worker

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (str(self), self.worker)


class InternalError(SimSDError):
    pass
