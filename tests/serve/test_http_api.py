"""The HTTP API without Ray: a stand-in answers, so every form and every refusal can be looked at in milliseconds."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
import pytest

from deployments.args import ServeArgs
from simsd.errors import ContextLengthError, QueueFullError, WorkerLostError
from simsd.messages.request import Output, Request, Stats
from simsd.tokens.tokenizer import Tokenizer
from tests.serve.stand_in import CONTEXT_TOKENS, MAX_BODY_BYTES, build_app, client_of

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


class StandIn:
    """Says "Paris" in two pieces, or what a test makes it do; keeps the request it was asked."""

    def __init__(self) -> None:
        self.asked: Request | None = None
        self.fail_first: Exception | None = None
        self.fail_later: Exception | None = None
        self.closed = 0

    async def generate(self, request: Request) -> AsyncGenerator[Output, None]:
        self.asked = request
        try:
            if self.fail_first:
                raise self.fail_first
            yield Output([11, 12], "Par")
            if self.fail_later:
                raise self.fail_later
            yield Output(
                [13], "is", "stop", Stats(prompt_tokens=9, completion_tokens=3, rounds=2, drafted=4, accepted=3)
            )
        finally:
            self.closed += 1

    async def load(self) -> tuple[int, int]:
        return 1, 2


@pytest.fixture
def stand_in() -> StandIn:
    return StandIn()


@pytest.fixture
async def client(tokenizer: Tokenizer, stand_in: StandIn) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(tokenizer, stand_in)) as client:
        yield client


async def post(client: httpx.AsyncClient, path: str = CHAT, **body: Any) -> httpx.Response:
    return await client.post(path, json=body)


def events_of(response: httpx.Response) -> list[Any]:
    """The data of server-sent events; "[DONE]" as text."""
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


def error_of(response: httpx.Response, status: int, param: str | None = None) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["param"] == param, error
    return error


async def test_whole_chat_answer(client: httpx.AsyncClient) -> None:
    body = (await post(client, **HELLO)).json()
    assert body["id"].startswith("chatcmpl-")
    assert (body["object"], body["model"]) == ("chat.completion", "tiny")
    assert body["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "Paris"}, "logprobs": None, "finish_reason": "stop"}
    ]
    assert body["usage"]["total_tokens"] == 12
    assert body["simsd"]["accepted"] == 3


async def test_whole_completion(client: httpx.AsyncClient, stand_in: StandIn) -> None:
    body = (await post(client, TEXT, prompt=[10, 11, 12], max_tokens=7)).json()
    assert (body["object"], body["choices"][0]["text"]) == ("text_completion", "Paris")
    assert stand_in.asked is not None
    assert (stand_in.asked.prompt_ids, stand_in.asked.params.max_tokens) == ([10, 11, 12], 7)


async def test_streamed_chat(client: httpx.AsyncClient, stand_in: StandIn) -> None:
    response = await post(client, **HELLO, stream=True, stream_options={"include_usage": True})
    *chunks, usage, done = events_of(response)
    assert done == "[DONE]"
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""},
        {"content": "Par"},
        {"content": "is"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all(chunk["usage"] is None for chunk in chunks)
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 3)
    assert stand_in.closed == 1


async def test_usage_as_it_grows(client: httpx.AsyncClient, stand_in: StandIn) -> None:
    """vLLM's continuous_usage_stats, which guidellm always sends."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, usage, done = events_of(await post(client, **HELLO, stream=True, stream_options=options))
    assert done == "[DONE]"
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [0, 2, 3, 3]
    assert stand_in.asked is not None
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {len(stand_in.asked.prompt_ids)}
    assert usage["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 3
    alone = {"continuous_usage_stats": True}
    refused = await post(client, **HELLO, stream=True, stream_options=alone)
    assert "include_usage" in error_of(refused, 400, "stream_options.continuous_usage_stats")["message"]


async def test_streamed_completion(client: httpx.AsyncClient) -> None:
    *chunks, done = events_of(await post(client, TEXT, prompt="Hello", stream=True))
    assert done == "[DONE]"
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Par", "is"]
    assert "usage" not in chunks[-1]


async def test_error_in_the_middle_of_a_stream_is_its_last_event(client: httpx.AsyncClient, stand_in: StandIn) -> None:
    stand_in.fail_later = WorkerLostError("secret detail", "target")
    events = events_of(await post(client, **HELLO, stream=True))
    assert events[-1]["error"]["code"] == "unavailable"
    assert "secret" not in json.dumps(events)


@pytest.mark.parametrize("stream", [False, True])
async def test_statuses_of_refusals(client: httpx.AsyncClient, stand_in: StandIn, stream: bool) -> None:
    stand_in.fail_first = QueueFullError("full", 3)
    response = await post(client, **HELLO, stream=stream)
    assert error_of(response, 429)["type"] == "rate_limit_error"
    assert response.headers["retry-after"] == "3"
    stand_in.fail_first = WorkerLostError("gone", "draft")
    response = await post(client, **HELLO, stream=stream)
    error_of(response, 503)
    assert "retry-after" in response.headers
    stand_in.fail_first = ContextLengthError("too long", "max_tokens")
    assert error_of(await post(client, **HELLO, stream=stream), 400, "max_tokens")["code"] == "context_length_exceeded"
    stand_in.fail_first = RuntimeError("secret detail")
    assert error_of(await post(client, **HELLO, stream=stream), 500)["message"] == "internal error"


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded", "text/plain"])
async def test_any_content_type(client: httpx.AsyncClient, content_type: str | None) -> None:
    headers = {"content-type": content_type} if content_type else {}
    response = await client.post(CHAT, content=json.dumps(HELLO), headers=headers)
    assert response.status_code == 200


async def test_null_is_absent(client: httpx.AsyncClient, stand_in: StandIn) -> None:
    fields = (
        "model",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "simsd",
    )
    response = await post(client, **HELLO, **dict.fromkeys((*fields, "tools", "audio", "logit_bias", "n", "user")))
    assert response.status_code == 200
    assert stand_in.asked is not None
    assert stand_in.asked.params.temperature == 0


async def test_fields_reach_the_request(client: httpx.AsyncClient, stand_in: StandIn) -> None:
    options = {"method": "exact", "gamma": 2, "draft_steps": 1, "remasking": "entropy", "steps": 3, "row_budget": 40}
    options |= {"layout": "branches", "fallback": "target", "threshold": 0.5, "entropy_bound": 0.1, "adaptive": True}
    options |= {"routing": "ucb", "routing_score": "entropy", "routing_cost": 0.5, "lookahead": 3}
    sampling = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "seed": 7}
    response = await post(client, **HELLO, **sampling, stop=["a", "b"], max_completion_tokens=9, n=1, simsd=options)
    assert response.status_code == 200, response.text
    assert stand_in.asked is not None
    params = stand_in.asked.params
    expected = options | sampling | {"stop": ("a", "b"), "max_tokens": 9}
    assert {name: getattr(params, name) for name in expected} == expected
    assert (await post(client, **HELLO, simsd={"drafter": "self"})).status_code == 200
    assert stand_in.asked.params.drafter == "self"


async def test_seed_is_random_only_where_it_matters(client: httpx.AsyncClient, stand_in: StandIn) -> None:
    seeds = set()
    for _ in range(2):
        await post(client, **HELLO, temperature=1)
        assert stand_in.asked is not None
        seeds.add(stand_in.asked.params.seed)
    assert len(seeds) == 2
    await post(client, **HELLO)
    assert stand_in.asked.params.seed == 0


async def test_max_tokens_defaults_to_what_is_left(client: httpx.AsyncClient, stand_in: StandIn) -> None:
    await post(client, **HELLO)
    assert stand_in.asked is not None
    assert stand_in.asked.params.max_tokens == ServeArgs().max_tokens
    await post(client, TEXT, prompt=[10] * (CONTEXT_TOKENS - 100))
    assert stand_in.asked.params.max_tokens == 100


async def test_message_parts_and_developer_role(
    client: httpx.AsyncClient, stand_in: StandIn, tokenizer: Tokenizer
) -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}]
    assert (await post(client, messages=messages)).status_code == 200
    plain = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    assert stand_in.asked is not None
    assert stand_in.asked.prompt_ids == tokenizer.encode_messages(plain)


BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"max_token": 5}, "max_token"),
    ({"max_token": None}, "max_token"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": 2.5}, "max_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": float("1e400")}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"seed": 2**64}, "seed"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"stop": ""}, "stop"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"usage": True}}, "stream_options.usage"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"logprobs": 1}, "logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"min_p": 2}, "min_p"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"logit_bias": {"1.5": 1}}, "logit_bias"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ({"echo": True}, "echo"),
    ({"stop": 5}, "stop"),
    ({"presence_penalty": 0.5}, "presence_penalty"),
    ({"presence_penalty": False}, "presence_penalty"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
    ({"audio": {"voice": "x"}}, "audio"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}, "messages[].tool_calls"),
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "Hello"}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "x", "nam": "y"}]}, "messages[].nam"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[].content[].image_url",
    ),
    ({"simsd": {"gama": 2}}, "simsd.gama"),
    ({"simsd": {"gamma": 5}}, "simsd.gamma"),
    ({"simsd": {"gamma": 2, "draft_steps": 3}}, "simsd.draft_steps"),
    ({"simsd": {"drafter": "self", "fallback": "target"}}, "simsd.fallback"),
    ({"simsd": {"drafter": "self", "method": "exact", "adaptive": True}}, "simsd.adaptive"),
    ({"simsd": {"lookahead": 9}}, "simsd.lookahead"),
    ({"simsd": {"steps": 9}}, "simsd.steps"),
    ({"simsd": {"method": "magic"}}, "simsd.method"),
    ({"simsd": {"threshold": 2}}, "simsd.threshold"),
    ({"simsd": "exact"}, "simsd"),
]


@pytest.mark.parametrize(("fields", "param"), BAD_FIELDS, ids=lambda value: str(value)[:40])
async def test_bad_fields_are_named(client: httpx.AsyncClient, fields: dict[str, Any], param: str) -> None:
    body = json.dumps(HELLO | fields)  # httpx refuses infinities; other clients do not
    error = error_of(await client.post(CHAT, content=body), 400, param)
    assert error["type"] == "invalid_request_error"
    assert param.rsplit(".", 1)[-1] in error["message"]


async def test_the_nearest_field_is_named(client: httpx.AsyncClient) -> None:
    assert "'max_tokens'" in error_of(await post(client, **HELLO, max_token=5), 400, "max_token")["message"]
    assert "'gamma'" in error_of(await post(client, **HELLO, simsd={"gama": 1}), 400, "simsd.gama")["message"]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'"text"', b"[" * 3000])
async def test_bodies_that_are_no_json_object(client: httpx.AsyncClient, content: bytes) -> None:
    error_of(await client.post(CHAT, content=content), 400)


async def test_mask_token_is_refused(client: httpx.AsyncClient, tokenizer: Tokenizer) -> None:
    error_of(await post(client, TEXT, prompt=[10, tokenizer.mask_token_id, 11]), 400, "prompt")
    mask_text = tokenizer.token_name(tokenizer.mask_token_id)
    error_of(await post(client, TEXT, prompt=f"Hello {mask_text} there"), 400, "prompt")
    error_of(await post(client, messages=[{"role": "user", "content": f"a{mask_text}b"}]), 400, "messages")


@pytest.mark.parametrize("prompt", ["", [], [-1], [10**9], [True], ["a", ""], ["a", 1], [[1], []], None, {"text": "x"}])
async def test_prompts_that_cannot_be_served(client: httpx.AsyncClient, prompt: Any) -> None:
    response = await post(client, TEXT, prompt=prompt)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith("prompt")


async def test_unknown_model_path_and_method(client: httpx.AsyncClient) -> None:
    assert error_of(await post(client, **HELLO, model="gpt-4"), 404, "model")["code"] == "model_not_found"
    assert (await post(client, **HELLO, model="tiny")).status_code == 200
    assert "/v1/nothing" in error_of(await client.get("/v1/nothing"), 404)["message"]
    error_of(await client.get("/v1/models/gpt-4"), 404, "model")
    error_of(await client.get(CHAT), 405)


async def test_body_limit(client: httpx.AsyncClient) -> None:
    error_of(await post(client, TEXT, prompt="a" * MAX_BODY_BYTES), 413)


async def test_models_and_health(client: httpx.AsyncClient) -> None:
    models = (await client.get("/v1/models")).json()
    assert [entry["id"] for entry in models["data"]] == ["tiny"]
    assert (await client.get("/v1/models/tiny")).json()["object"] == "model"
    assert (await client.get("/health")).json() == {"status": "ok", "running": 1, "waiting": 2}


async def test_client_that_leaves_before_the_first_token(tokenizer: Tokenizer) -> None:
    """The handler is cancelled while it waits; the backend's generator must be closed."""

    class Slow(StandIn):
        async def generate(self, request: Request) -> AsyncGenerator[Output, None]:
            try:
                await asyncio.sleep(60)
                yield Output([], "")
            finally:
                self.closed += 1

    slow = Slow()
    for stream in (False, True):
        async with client_of(build_app(tokenizer, slow)) as client:
            task = asyncio.create_task(post(client, **HELLO, stream=stream))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert slow.closed == 2
