"""Logs of the replicas: ours go where Ray Serve's go, as text or as a JSON object a line, with its request ids.

`SIMSD_LOG_FORMAT` (json, text) and `SIMSD_LOG_LEVEL` (DEBUG, INFO, WARNING, ERROR) are read where the application is
built, and travel with its deployments. Absent, Serve's own settings hold.
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
    """Serve's logging config as the environment asks for it, None where it says nothing; `ConfigError` for nonsense."""
    given = {name: os.environ[name].lower() for name in CHOICES if os.environ.get(name)}
    for name, value in given.items():
        if value not in CHOICES[name]:
            raise ConfigError(f"{name} must be one of {', '.join(CHOICES[name])}; got {value!r}")
    keys = {"SIMSD_LOG_FORMAT": "encoding", "SIMSD_LOG_LEVEL": "log_level"}
    return {keys[name]: value.upper() for name, value in given.items()} or None


class ToServe(logging.Handler):
    """Hands records to Serve's logger: its file, its format, and who the replica and the request are."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger(SERVE_LOGGER).handle(record)


def join_serve() -> None:
    """In a replica: our loggers log as Serve's does, at its level. Fine to call twice."""
    for name in OURS:
        ours = logging.getLogger(name)
        ours.setLevel(logging.getLogger(SERVE_LOGGER).level)
        if not any(isinstance(handler, ToServe) for handler in ours.handlers):
            ours.addHandler(ToServe())


def log_end(record: RequestRecord) -> None:
    """One line for a request that is over; as JSON with a member for each number."""
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
