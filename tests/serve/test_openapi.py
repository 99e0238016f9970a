"""/openapi.json is true: requests made from it, right and wrong ones, meet nothing that it does not describe."""

import json
import os
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings, strategies
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import CHECKS

from deployments.ingress.replies import ChatChunk, CompletionChunk, ErrorBody
from simsd.tokens.tokenizer import Tokenizer
from tests.serve.stand_in import Reciter, build_app

CASES = int(os.environ.get("SIMSD_API_CASES", "300"))
"""Of all operations together."""
OPERATIONS = {
    "GET /health": 0,
    "GET /version": 0,
    "GET /v1/models": 0,
    "GET /v1/models/{name}": 2,
    "POST /tokenize": 8,
    "POST /detokenize": 5,
    "POST /v1/completions": 16,
    "POST /v1/chat/completions": 16,
}
"""Operation -> its share of the cases; two for what takes nothing."""
MODES = [(label, GenerationMode.POSITIVE) for label in OPERATIONS]
MODES += [(label, GenerationMode.NEGATIVE) for label in OPERATIONS if label.startswith("POST")]
"""A GET takes nothing that could be wrong."""
SHARES = sum(OPERATIONS[label] for label, _ in MODES)


@pytest.fixture(scope="module")
def app(tokenizer: Tokenizer) -> FastAPI:
    return build_app(tokenizer, Reciter(tokenizer), max_body_bytes=2**20)


@pytest.fixture(scope="module")
def operations(app: FastAPI) -> dict[str, Any]:
    config = schemathesis.Config.from_dict({"max-stream-events": 10_000})
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, config=config)
    return {operation.label: operation for operation in (found.ok() for found in schema.get_all_operations())}


def test_every_operation_is_tried(operations: dict[str, Any]) -> None:
    assert operations.keys() == OPERATIONS.keys()


@pytest.mark.parametrize(("label", "mode"), MODES, ids=lambda value: getattr(value, "value", value))
def test_requests_from_the_description(operations: dict[str, Any], label: str, mode: GenerationMode) -> None:
    operation = operations[label]
    statuses: dict[int | str, int] = {}

    @given(case=operation.as_strategy(generation_mode=mode), stream=strategies.sampled_from((None, False, True)))
    @settings(
        max_examples=max(2, -(-CASES * OPERATIONS[label] // SHARES)),
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Case, stream: bool | None) -> None:
        if mode is GenerationMode.POSITIVE and stream is not None and isinstance(case.body, dict):
            meet_what_is_not_described(case.body, stream, decodes="completions" in case.path)
        response = case.call_and_validate(excluded_checks=[CHECKS.get_one("positive_data_acceptance")])
        streamed = "text/event-stream" in response.headers["content-type"][0]
        outcome = "streamed" if streamed else response.status_code
        statuses[outcome] = statuses.get(outcome, 0) + 1
        if streamed:
            check_events(response, case.path)

    check()
    print(label, mode.value, statuses)
    assert sum(statuses.values()) > 0
    if mode is GenerationMode.POSITIVE and "{" not in label:
        assert statuses.get(200, 0) > 0, statuses
        assert statuses.get("streamed", 0) > 0 or "completions" not in label, statuses


def meet_what_is_not_described(body: dict[str, Any], stream: bool, decodes: bool) -> None:
    """Bring a body within the limits that no schema can state: of model and context, and of fields together."""
    body["model"] = None
    if body.get("add_special_tokens"):
        body["add_special_tokens"] = None
    if not decodes:
        return
    options = {name: value for name, value in (body.get("simsd") or {}).items() if not isinstance(value, int)}
    options["events"] = stream
    body |= {"simsd": options, "stream": stream, "max_tokens": 9, "min_tokens": 1, "logit_bias": {"7": 1}}
    if not stream:
        body["stream_options"] = None
    if body.get("top_logprobs") is not None:
        body["logprobs"] = True
    if isinstance(body.get("prompt"), list):
        body["prompt"] = ["One", "Two"] if isinstance(body["prompt"][0], str) else [[10, 11], [12]]


def check_events(response: Response, path: str) -> None:
    """Each event is a chunk and nothing else; the last may be an error."""
    chunk = ChatChunk if "chat" in path else CompletionChunk
    *events, last = [event.removeprefix("data: ") for event in response.content.decode().strip().split("\n\n")]
    if last != "[DONE]":
        ErrorBody.model_validate_json(last)
    for event in events:
        told = chunk.model_validate_json(event).model_dump_json(exclude_unset=True)
        assert json.loads(told) == json.loads(event)
