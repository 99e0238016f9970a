"""Logs of the replicas: ours join Ray Serve's, as text or as one JSON object a line, with Serve's request ids.

`SIMSD_LOG_FORMAT` (json, text) and `SIMSD_LOG_LEVEL` (DEBUG, INFO, WARNING, ERROR) are read where the application is
built, and travel with its deployments. Where one is not set, Serve's own setting holds.
"""

import logging
import os
from typing import Any

from deployments.metrics import RequestRecord
from simsd.errors import ConfigError

logger = logging.getLogger(__name__)

SERVE_LOGGER = "ray.serve"
OURS = ("simsd", "deployments")
CHOICES = {
    "SIMSD_LOG_FORMAT": ("json", "text"),
    "SIMSD_LOG_LEVEL": ("debug", "info", "warning", "error"),
}

COUNTS = ("cached_tokens", "rounds", "drafted", "accepted", "recovered", "bonus", "fallback_tokens")
TIMES = ("queue_s", "prefill_s", "decode_s")


def logging_config() -> dict[str, Any] | None:
    """Return Serve's logging config from the environment, None where it sets nothing; raises `ConfigError`."""
    given = {name: os.environ[name].lower() for name in CHOICES if os.environ.get(name)}
    for name, value in given.items():
        if value not in CHOICES[name]:
            raise ConfigError(f"{name} must be one of {', '.join(CHOICES[name])}; got {value!r}")
    keys = {"SIMSD_LOG_FORMAT": "encoding", "SIMSD_LOG_LEVEL": "log_level"}
    return {keys[name]: value.upper() for name, value in given.items()} or None


class ToServe(logging.Handler):
    """A handler that passes records to Serve's logger, which adds the replica and the request and has the file."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger(SERVE_LOGGER).handle(record)


def join_serve() -> None:
    """Make our loggers in this replica log through Serve's, at its level. It may be called more than once."""
    for name in OURS:
        ours = logging.getLogger(name)
        ours.setLevel(logging.getLogger(SERVE_LOGGER).level)
        if not any(isinstance(handler, ToServe) for handler in ours.handlers):
            ours.addHandler(ToServe())


def log_end(record: RequestRecord) -> None:
    """Log one line about a request that is over; as JSON, it has a member for each number."""
    request, stats = record.request, record.stats
    facts: dict[str, Any] = {
        "id": request.request_id,
        "outcome": record.outcome,
        "method": request.params.method,
        "prompt_tokens": len(request.prompt_ids),
        "completion_tokens": record.tokens,
        "seconds": round(record.elapsed_s, 6),
    }
    if record.first is not None:
        facts["first_token_s"] = round(record.first - record.began, 6)
    if stats is not None:
        facts |= {name: getattr(stats, name) for name in COUNTS}
        facts |= {name: round(getattr(stats, name), 6) for name in TIMES}
    logger.info("%(id)s %(outcome)s, %(completion_tokens)d tokens in %(seconds).3f s", facts, extra=facts)
