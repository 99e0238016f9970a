"""Several choices, log-probabilities, echo and events, in front of a stand-in that recites."""

import asyncio
import codecs
import json
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from simsd.config import SHIPPED
from simsd.errors import QueueFullError
from simsd.messages.request import Output, Request
from simsd.models.files import resolve_model
from simsd.tokens.tokenizer import Tokenizer
from tests.serve.stand_in import BLOCK_SIZE, SPEECH, Reciter, build_app, client_of

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
def reciter(tokenizer: Tokenizer) -> Reciter:
    return Reciter(tokenizer)


@pytest.fixture
async def client(tokenizer: Tokenizer, reciter: Reciter) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(build_app(tokenizer, reciter)) as client:
        yield client


async def answer(client: httpx.AsyncClient, path: str = CHAT, **body: Any) -> Any:
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def chunks(client: httpx.AsyncClient, path: str = CHAT, **body: Any) -> list[Any]:
    """The chunks of a stream that ended well."""
    response = await client.post(path, json=body | {"stream": True})
    assert response.status_code == 200, response.text
    *events, done, nothing = response.text.split("\n\n")
    assert (done, nothing) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


async def refusal(client: httpx.AsyncClient, path: str, param: str, **body: Any) -> str:
    response = await client.post(path, json=body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param, error
    return error["message"]


async def test_n_choices_are_seeds_in_a_row(client: httpx.AsyncClient, reciter: Reciter) -> None:
    body = await answer(client, **HELLO, n=3, temperature=1, seed=7)
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert {choice["message"]["content"] for choice in body["choices"]} == {SPEECH}
    assert sorted(asked.params.seed for asked in reciter.asked) == [7, 8, 9]
    assert len({asked.request_id for asked in reciter.asked}) == 3
    assert body["id"] in {asked.request_id for asked in reciter.asked}


async def test_seeds_go_round(client: httpx.AsyncClient, reciter: Reciter) -> None:
    await answer(client, **HELLO, n=2, temperature=1, seed=2**63 - 1)
    assert {asked.params.seed for asked in reciter.asked} == {2**63 - 1, -(2**63)}


async def test_choices_of_one_body_share_a_random_seed(client: httpx.AsyncClient, reciter: Reciter) -> None:
    await answer(client, **HELLO, n=2, temperature=1)
    first, second = sorted(asked.params.seed for asked in reciter.asked)
    assert second - first in (1, 2**64 - 1)


async def test_usage_counts_a_prompt_once(client: httpx.AsyncClient, reciter: Reciter) -> None:
    body = await answer(client, TEXT, prompt=["One", "Two three"], n=2, max_tokens=3)
    prompts = {tuple(asked.prompt_ids) for asked in reciter.asked}
    usage = body["usage"]
    assert usage["prompt_tokens"] == sum(map(len, prompts))
    assert usage["completion_tokens"] == 12
    assert usage["total_tokens"] == usage["prompt_tokens"] + 12
    assert usage["prompt_tokens_details"] == {"cached_tokens": 2}
    # Two rounds a choice, each with two drafted tokens and one accepted.
    assert usage["completion_tokens_details"] == {"accepted_prediction_tokens": 8, "rejected_prediction_tokens": 8}
    assert (body["simsd"]["rounds"], body["simsd"]["cached_tokens"]) == (8, 4)
    assert body["simsd"]["accept_histogram"] == {"1": 4}


@pytest.mark.parametrize(
    ("prompt", "count"), [("Hi", 1), (["Hi", "Ho"], 2), ([10, 11, 12], 1), ([[10, 11], [12]], 2), (["Hi"], 1)]
)
async def test_forms_of_prompts(client: httpx.AsyncClient, reciter: Reciter, prompt: Any, count: int) -> None:
    body = await answer(client, TEXT, prompt=prompt, n=2, echo=True, max_tokens=1)
    assert [choice["index"] for choice in body["choices"]] == list(range(2 * count))
    by_id = sorted(reciter.asked, key=lambda asked: int(asked.request_id.partition("-")[2].partition("-")[2] or 0))
    texts = [reciter.tokenizer.decode(asked.prompt_ids) for asked in by_id]
    assert [choice["text"][: len(text)] for choice, text in zip(body["choices"], texts, strict=True)] == texts
    assert texts[0::2] == texts[1::2]


async def test_too_many_choices(client: httpx.AsyncClient) -> None:
    assert "128" in await refusal(client, TEXT, "prompt", prompt=["a"] * 65, n=2)
    assert "16" in await refusal(client, TEXT, "n", prompt="a", n=17)
    assert "128" in await refusal(client, TEXT, "prompt", prompt=["a"] * 129)
    assert len((await answer(client, TEXT, prompt=["a"] * 64, n=2, max_tokens=1))["choices"]) == 128


async def test_streamed_choices_are_the_whole_ones(client: httpx.AsyncClient) -> None:
    for path, body in ((CHAT, HELLO), (TEXT, {"prompt": ["Hi", "Ho"], "echo": True})):
        asked = body | {"n": 2, "logprobs": path == CHAT or 1}
        whole = await answer(client, path, **asked)
        *parts, last = await chunks(client, path, **asked, stream_options={"include_usage": True})
        assert all(part["usage"] is None for part in parts)
        assert (last["choices"], last["usage"]) == ([], whole["usage"])
        for choice in whole["choices"]:
            mine = [c for part in parts for c in part["choices"] if c["index"] == choice["index"]]
            if path == CHAT:
                assert mine[0]["delta"] == {"role": "assistant", "content": ""}
                assert "".join(c["delta"].get("content", "") for c in mine) == choice["message"]["content"]
                told = [one for c in mine if c["logprobs"] for one in c["logprobs"]["content"]]
                assert told == choice["logprobs"]["content"]
            else:
                assert "".join(c["text"] for c in mine) == choice["text"]
                for name, values in choice["logprobs"].items():
                    assert [one for c in mine for one in c["logprobs"][name]] == values, name
            assert [c["finish_reason"] for c in mine if c["finish_reason"]] == [choice["finish_reason"]]


async def test_chat_logprobs(client: httpx.AsyncClient, tokenizer: Tokenizer) -> None:
    body = await answer(client, **HELLO, logprobs=True, top_logprobs=2)
    entries = body["choices"][0]["logprobs"]["content"]
    assert len(entries) == body["usage"]["completion_tokens"]
    assert [entry["logprob"] for entry in entries] == [-float(i) for i in range(len(entries))]
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == SPEECH
    assert all(entry["top_logprobs"][0]["token"] == entry["token"] for entry in entries)
    assert {len(entry["top_logprobs"]) for entry in entries} == {2}
    assert any("\ufffd" in entry["token"] for entry in entries), "the speech has characters of several tokens"
    without = await answer(client, **HELLO, logprobs=True)
    assert {len(entry["top_logprobs"]) for entry in without["choices"][0]["logprobs"]["content"]} == {0}
    assert (await answer(client, **HELLO))["choices"][0]["logprobs"] is None


async def test_special_tokens_have_a_name_and_no_bytes(tokenizer: Tokenizer) -> None:
    class Ends(Reciter):
        async def generate(self, request: Request) -> AsyncGenerator[Output, None]:
            async for output in super().generate(request):
                end_of_turn = tokenizer.token_id("<|im_end|>")
                assert end_of_turn is not None
                for known in output.logprobs:
                    known.top[0] = (end_of_turn, float("-inf"))
                yield output

    async with client_of(build_app(tokenizer, Ends(tokenizer))) as client:
        body = await answer(client, **HELLO, logprobs=True, top_logprobs=1)
        [top] = body["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        assert top == {"token": "<|im_end|>", "logprob": -9999.0, "bytes": None}


async def test_text_logprobs(client: httpx.AsyncClient, tokenizer: Tokenizer) -> None:
    body = await answer(client, TEXT, prompt="Hello", logprobs=1)
    [choice] = body["choices"]
    logprobs = choice["logprobs"]
    ids = tokenizer.encode(SPEECH)
    assert len(set(map(len, logprobs.values()))) == 1
    assert len(logprobs["tokens"]) == len(ids)
    assert logprobs["token_logprobs"] == [-float(i) for i in range(len(ids))]
    assert all(token in top for token, top in zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True))
    decoder = codecs.getincrementaldecoder("utf-8")()
    text = ""
    for token_id, offset, token in zip(ids, logprobs["text_offset"], logprobs["tokens"], strict=True):
        assert offset == len(text)
        try:
            assert token == tokenizer.token_bytes(token_id).decode()
        except UnicodeDecodeError:
            assert token.startswith("bytes:\\x")
        text += decoder.decode(tokenizer.token_bytes(token_id))
    assert text == choice["text"]


async def test_a_token_that_is_no_alternative_is_told_too(client: httpx.AsyncClient) -> None:
    [choice] = (await answer(client, TEXT, prompt="Hello", logprobs=0))["choices"]
    tops = choice["logprobs"]["top_logprobs"]
    assert tops == [
        {token: logprob}
        for token, logprob in zip(choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"], strict=True)
    ]


async def test_echo(client: httpx.AsyncClient, reciter: Reciter, tokenizer: Tokenizer) -> None:
    prompt = "Grüße 🙂 <|im_end|>!"
    plain = (await answer(client, TEXT, prompt=prompt, echo=True, max_tokens=2))["choices"][0]
    assert plain["text"].startswith(prompt)
    assert plain["logprobs"] is None
    assert not reciter.asked[-1].report.prompt
    ids = tokenizer.encode(prompt)
    for sent in (prompt, ids):
        body = await answer(client, TEXT, prompt=sent, echo=True, logprobs=1, max_tokens=2)
        [choice] = body["choices"]
        assert choice["text"] == plain["text"]
        logprobs = choice["logprobs"]
        assert len(logprobs["tokens"]) == len(ids) + 2
        assert logprobs["token_logprobs"] == [-float(i) for i in (*range(len(ids)), 0, 1)]
        assert logprobs["text_offset"][len(ids)] == len(prompt)
        special = ids.index(tokenizer.token_id("<|im_end|>") or -1)
        assert logprobs["tokens"][special] == "<|im_end|>"
        assert logprobs["text_offset"][special] == prompt.index("<|im_end|>")
        assert body["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("logprobs", [None, 1])
async def test_echo_of_the_prompt_alone(client: httpx.AsyncClient, tokenizer: Tokenizer, logprobs: int | None) -> None:
    fields: dict[str, Any] = {"prompt": "Hello there", "echo": True, "max_tokens": 0, "logprobs": logprobs}
    body = await answer(client, TEXT, **fields)
    [choice] = body["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("Hello there", "length")
    assert (body["usage"]["completion_tokens"], body["simsd"]["completion_tokens"]) == (0, 0)
    if logprobs is not None:
        assert len(choice["logprobs"]["tokens"]) == len(tokenizer.encode("Hello there"))
    streamed = await chunks(client, TEXT, **fields)
    assert "".join(part["choices"][0]["text"] for part in streamed) == "Hello there"
    assert streamed[-1]["choices"][0]["finish_reason"] == "length"


async def test_max_tokens_0_needs_echo(client: httpx.AsyncClient) -> None:
    assert "echo" in await refusal(client, TEXT, "max_tokens", prompt="Hello", max_tokens=0)
    await refusal(client, CHAT, "max_tokens", **HELLO, max_tokens=0)


async def test_events(client: httpx.AsyncClient, tokenizer: Tokenizer) -> None:
    parts = await chunks(client, **HELLO, n=2, max_tokens=5, simsd={"events": True})
    rounds = [part for part in parts if "simsd" in part]
    assert all(part["choices"] == [] for part in rounds)
    for choice in (0, 1):
        events = [part["simsd"]["event"] for part in rounds if part["simsd"]["choice"] == choice]
        assert [event["round"] for event in events] == [1, 2, 3]
        assert [event["start"] for event in events] == [0, 0, 4]
        assert {event["block_size"] for event in events} == {BLOCK_SIZE}
        ids = tokenizer.encode(SPEECH)[:5]
        drafted = [drafted for event in events for drafted in event["drafted"]]
        assert [(one["index"], one["token_id"]) for one in drafted] == list(enumerate(ids))
        assert drafted[0]["text"] == "The"
        assert events[0]["reveals"] == [{"index": 0, "token_id": ids[0], "text": "The", "kind": "accepted"}]
    # A round comes before the text that it made visible.
    of_first = [part for part in parts if "simsd" in part or part["choices"][0]["delta"].get("content")]
    assert "simsd" in of_first[0]


async def test_events_are_for_streams_only(client: httpx.AsyncClient) -> None:
    assert "stream" in await refusal(client, CHAT, "simsd.events", **HELLO, simsd={"events": True})
    parts = await chunks(client, TEXT, prompt="Hello", simsd={"events": False})
    assert all("simsd" not in part for part in parts)


async def test_fields_of_other_servers_reach_the_request(client: httpx.AsyncClient, reciter: Reciter) -> None:
    bias = {"10": 1.5, "0": -100}
    await answer(client, **HELLO, min_p=0.1, min_tokens=2, logit_bias=bias, ignore_eos=True, max_tokens=3)
    params = reciter.asked[0].params
    assert (params.min_p, params.min_tokens, params.ignore_eos) == (0.1, 2, True)
    assert dict(params.logit_bias) == {10: 1.5, 0: -100}


async def test_chat_template_kwargs_reach_the_template(tmp_path: Path, reciter: Reciter) -> None:
    shutil.copytree(resolve_model(SHIPPED, "target"), tmp_path, dirs_exist_ok=True)
    (tmp_path / "chat_template.jinja").write_text("{{ style }}{{ messages[0].content }}{{ 1 + number }}")
    tokenizer = Tokenizer.load(tmp_path)
    async with client_of(build_app(tokenizer, reciter)) as client:
        await answer(client, **HELLO, chat_template_kwargs={"style": "Sir, ", "number": 1})
        assert tokenizer.decode(reciter.asked[-1].prompt_ids) == "Sir, Hello2"
        for kwargs in ({"number": "x"}, {"messages": []}, {"self": 1}, {"add_generation_prompt": False}):
            await refusal(client, CHAT, "chat_template_kwargs", **HELLO, chat_template_kwargs=kwargs)


class Uneven(Reciter):
    """The second choice fails, or the first ones never end."""

    failure: Exception | None = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.all_open = asyncio.Event()

    async def generate(self, request: Request) -> AsyncGenerator[Output, None]:
        self.open += 1
        if self.open == 3:
            self.all_open.set()
        try:
            if request.params.seed == 1 and self.failure is not None:
                await asyncio.sleep(0.01)
                raise self.failure
            while True:
                yield Output([10], "a")
                await asyncio.sleep(0.001)
        finally:
            self.open -= 1


@pytest.mark.parametrize("stream", [False, True])
async def test_one_choice_that_fails_ends_the_others(tokenizer: Tokenizer, stream: bool) -> None:
    uneven = Uneven(tokenizer)
    uneven.failure = QueueFullError("full")
    async with client_of(build_app(tokenizer, uneven)) as client:
        response = await client.post(CHAT, json=HELLO | {"n": 3, "stream": stream})
        if stream:
            assert json.loads(response.text.strip().split("\n\n")[-1][6:])["error"]["code"] == "queue_full"
        else:
            assert response.status_code == 429
    assert uneven.open == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_all_choices(tokenizer: Tokenizer, stream: bool) -> None:
    uneven = Uneven(tokenizer)
    async with client_of(build_app(tokenizer, uneven)) as client:
        asking = asyncio.create_task(client.post(CHAT, json=HELLO | {"n": 3, "stream": stream}))
        await uneven.all_open.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert uneven.open == 0
