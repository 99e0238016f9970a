"""/openapi.json is true: requests made from it, right and wrong ones, meet nothing that it does not describe."""

import json
import os
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import CHECKS

from deployments.ingress.replies import ChatChunk, CompletionChunk, ErrorBody
from simsd.tokenizer import Tokenizer
from tests.serve.stand_in import Reciter, build_app

CASES = int(os.environ.get("SIMSD_API_CASES", "300"))
"""Of all operations together."""
OPERATIONS = {
    "GET /health": 1,
    "GET /version": 1,
    "GET /v1/models": 1,
    "GET /v1/models/{name}": 2,
    "POST /tokenize": 8,
    "POST /detokenize": 5,
    "POST /v1/completions": 16,
    "POST /v1/chat/completions": 16,
}
"""Operation -> its share of the cases."""
MODES = [(label, GenerationMode.POSITIVE) for label in OPERATIONS]
MODES += [(label, GenerationMode.NEGATIVE) for label in OPERATIONS if label.startswith("POST")]
"""A GET takes nothing that could be wrong."""


@pytest.fixture(scope="module")
def app(tokenizer: Tokenizer) -> FastAPI:
    return build_app(tokenizer, Reciter(tokenizer))


@pytest.fixture(scope="module")
def operations(app: FastAPI) -> dict[str, Any]:
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    return {operation.label: operation for operation in (found.ok() for found in schema.get_all_operations())}


def test_every_operation_is_tried(operations: dict[str, Any]) -> None:
    assert operations.keys() == OPERATIONS.keys()


@pytest.mark.parametrize(("label", "mode"), MODES, ids=lambda value: getattr(value, "value", value))
def test_requests_from_the_description(operations: dict[str, Any], label: str, mode: GenerationMode) -> None:
    operation = operations[label]
    statuses: dict[int, int] = {}

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=max(2, CASES * OPERATIONS[label] // sum(OPERATIONS.values()) // 2),
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Case) -> None:
        # Not every limit can be written down: the context, the mask token, fields that need another.
        response = case.call_and_validate(excluded_checks=[CHECKS.get_one("positive_data_acceptance")])
        statuses[response.status_code] = statuses.get(response.status_code, 0) + 1
        if response.status_code == 200 and "text/event-stream" in response.headers["content-type"][0]:
            check_events(response, case.path)

    check()
    assert sum(statuses.values()) > 0
    if mode is GenerationMode.POSITIVE and "{" not in label:
        assert statuses.get(200, 0) > 0, statuses


def check_events(response: Response, path: str) -> None:
    """Each event is a chunk and nothing else; the last may be an error."""
    chunk = ChatChunk if "chat" in path else CompletionChunk
    *events, last = [event.removeprefix("data: ") for event in response.content.decode().strip().split("\n\n")]
    if last != "[DONE]":
        ErrorBody.model_validate_json(last)
    for event in events:
        told = chunk.model_validate_json(event).model_dump_json(exclude_unset=True)
        assert json.loads(told) == json.loads(event)
