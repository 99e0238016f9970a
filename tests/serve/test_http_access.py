"""Keys, request ids, unknown fields, tokens and what the server says of itself."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deployments.ingress.environment import ApiKeys, ignores_unknown_fields
from simsd import __version__
from simsd.errors import ConfigError
from simsd.tokens.tokenizer import Tokenizer
from tests.serve.stand_in import CONTEXT_TOKENS, Reciter, build_app, client_of

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
PROTECTED = [
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/tiny", None),
    ("POST", CHAT, HELLO),
    ("POST", "/v1/completions", {"prompt": "Hello"}),
    ("POST", "/tokenize", {"prompt": "Hello"}),
    ("POST", "/detokenize", {"tokens": [10]}),
]


@pytest.fixture
async def client(tokenizer: Tokenizer) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(tokenizer, Reciter(tokenizer))) as client:
        yield client


@pytest.fixture
async def guarded(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setenv("SIMSD_API_KEYS", "first, sécond")
    async with client_of(build_app(tokenizer, Reciter(tokenizer))) as client:
        yield client


@pytest.mark.parametrize(("method", "path", "body"), PROTECTED, ids=lambda value: str(value)[:25])
async def test_keys(guarded: httpx.AsyncClient, method: str, path: str, body: Any) -> None:
    for header in (None, "Bearer", "Bearer ", "Bearer wrong", "Basic first", "first", "Bearer firs", "Bearer firstt"):
        headers = {} if header is None else {"authorization": header}
        response = await guarded.request(method, path, json=body, headers=headers)
        assert response.status_code == 401, header
        assert response.headers["www-authenticate"] == "Bearer"
        error = response.json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
        assert "x-request-id" in response.headers
    for key in ("first", "sécond"):
        headers_of_bytes = {b"authorization": b"bearer " + key.encode()}
        response = await guarded.request(method, path, json=body, headers=headers_of_bytes)
        assert response.status_code == 200, response.text


async def test_what_needs_no_key(guarded: httpx.AsyncClient) -> None:
    for path in ("/health", "/version", "/openapi.json"):
        assert (await guarded.get(path)).status_code == 200, path


def test_keys_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("one\n\n  two  \n")
    keys = ApiKeys.from_environment({"SIMSD_API_KEYS_FILE": str(path), "SIMSD_API_KEYS": "three"})
    assert sorted(keys.keys) == [b"one", b"three", b"two"]
    assert not ApiKeys.from_environment({"SIMSD_API_KEYS": "", "OTHER": "x"})
    path.write_text("\n")
    for environment in (
        {"SIMSD_API_KEYS_FILE": str(path)},
        {"SIMSD_API_KEYS_FILE": str(tmp_path / "none")},
        {"SIMSD_API_KEYS": " , "},
    ):
        with pytest.raises(ConfigError, match="SIMSD_API_KEYS"):
            ApiKeys.from_environment(environment)


async def test_unknown_fields_can_be_ignored(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMSD_IGNORE_UNKNOWN_FIELDS", "1")
    body = HELLO | {"max_token": 5, "simsd": {"gama": 1}}
    async with client_of(build_app(tokenizer, Reciter(tokenizer))) as client:
        assert (await client.post(CHAT, json=body)).status_code == 200
        # What would change the answer, and is not there, is refused all the same.
        assert (await client.post(CHAT, json=HELLO | {"presence_penalty": 1})).status_code == 400
    monkeypatch.setenv("SIMSD_IGNORE_UNKNOWN_FIELDS", "0")
    async with client_of(build_app(tokenizer, Reciter(tokenizer))) as client:
        assert (await client.post(CHAT, json=body)).status_code == 400
    with pytest.raises(ConfigError, match="0 or 1"):
        ignores_unknown_fields({"SIMSD_IGNORE_UNKNOWN_FIELDS": "yes"})


@pytest.mark.parametrize("given", ["abc-123", "x" * 128, "!~"])
async def test_request_ids_come_back(client: httpx.AsyncClient, given: str) -> None:
    for path, status in (("/health", 200), ("/nothing", 404), (CHAT, 405)):
        response = await client.get(path, headers={"x-request-id": given})
        assert (response.status_code, response.headers.get_list("x-request-id")) == (status, [given])


@pytest.mark.parametrize("given", [None, "", "a b", "x" * 129, "é"])
async def test_other_request_ids_are_replaced(client: httpx.AsyncClient, given: str | None) -> None:
    headers = {} if given is None else {b"x-request-id": given.encode()}
    seen = set()
    for body in (HELLO, HELLO | {"stream": True}, HELLO | {"n": 0}):
        [own] = (await client.post(CHAT, json=body, headers=headers)).headers.get_list("x-request-id")
        seen.add(own)
        assert own.startswith("req-")
    assert len(seen) == 3


async def test_a_fault_of_ours_has_an_id_and_no_insides(tokenizer: Tokenizer) -> None:
    class Broken(Reciter):
        async def load(self) -> tuple[int, int]:
            raise RuntimeError("secret detail")

    async with client_of(build_app(tokenizer, Broken(tokenizer))) as client:
        response = await client.get("/health", headers={"x-request-id": "mine"})
        assert (response.status_code, response.headers["x-request-id"]) == (500, "mine")
        assert "secret" not in response.text


async def test_tokenize(client: httpx.AsyncClient, tokenizer: Tokenizer) -> None:
    body = (await client.post("/tokenize", json={"prompt": "Hello 🙂", "return_token_strs": True})).json()
    ids = tokenizer.encode("Hello 🙂")
    assert (body["tokens"], body["count"], body["max_model_len"]) == (ids, len(ids), CONTEXT_TOKENS)
    assert body["token_strs"] == [tokenizer.token_name(token) for token in ids]
    plain = (await client.post("/tokenize", json={"prompt": "Hello", "add_special_tokens": False})).json()
    assert plain["tokens"] == tokenizer.encode("Hello", add_special_tokens=False)
    assert plain["token_strs"] is None


async def test_tokenize_messages(client: httpx.AsyncClient, tokenizer: Tokenizer) -> None:
    messages = HELLO["messages"]
    ready = (await client.post("/tokenize", json=HELLO)).json()["tokens"]
    assert ready == tokenizer.encode_messages(messages)
    bare = (await client.post("/tokenize", json=HELLO | {"add_generation_prompt": False})).json()["tokens"]
    assert bare == ready[: len(bare)]
    assert len(bare) < len(ready)


async def test_detokenize_is_the_way_back(client: httpx.AsyncClient, tokenizer: Tokenizer) -> None:
    text = "<|im_start|>user\nGrüße 🙂<|im_end|>"
    ids = (await client.post("/tokenize", json={"prompt": text})).json()["tokens"]
    assert (await client.post("/detokenize", json={"tokens": ids})).json() == {"prompt": text}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", HELLO | {"prompt": "x"}, "prompt"),
        ("/tokenize", {"prompt": ""}, "prompt"),
        ("/tokenize", {"prompt": "x", "add_generation_prompt": True}, "add_generation_prompt"),
        ("/tokenize", {"prompt": "x", "chat_template_kwargs": {}}, "chat_template_kwargs"),
        ("/tokenize", HELLO | {"add_special_tokens": True}, "add_special_tokens"),
        ("/tokenize", {"prompt": "x", "texts": []}, "texts"),
        ("/detokenize", {"tokens": []}, "tokens"),
        ("/detokenize", {"tokens": [10**9]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": "abc"}, "tokens"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_bad_token_bodies(client: httpx.AsyncClient, path: str, body: Any, param: str) -> None:
    response = await client.post(path, json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


async def test_half_a_surrogate_pair_is_refused(client: httpx.AsyncClient) -> None:
    for field in ('"\\ud800": 1', '"model": "\\ud800"', '"stop": "\\ud800"', '"user": "\\ud800"'):
        content = json.dumps(HELLO)[:-1] + f", {field}}}"
        response = await client.post(CHAT, content=content)
        assert response.status_code == 400, response.text
        assert response.json()["error"]["message"]
    for content in ("\\ud800", "\\uD83D\\uDE42"):
        body = f'{{"messages": [{{"role": "user", "content": "{content}"}}]}}'
        assert (await client.post(CHAT, content=body)).status_code == (400 if content == "\\ud800" else 200)


async def test_what_the_server_says_of_itself(client: httpx.AsyncClient) -> None:
    [entry] = (await client.get("/v1/models")).json()["data"]
    assert (entry["id"], entry["max_model_len"]) == ("tiny", CONTEXT_TOKENS)
    assert (await client.get("/v1/models/tiny")).json() == entry
    missing = await client.get("/v1/models/other")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert (await client.get("/version")).json() == {"version": __version__}
    assert (await client.get("/health")).json() == {"status": "ok", "running": 0, "waiting": 0}
