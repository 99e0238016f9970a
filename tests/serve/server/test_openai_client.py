"""The official client against the real server: what people's programs do."""

from typing import Any

import openai
import pytest

from tests.serve.server.conftest import TIMEOUT_S, Server

QUESTION = "What is the capital of France?"
MESSAGES: Any = [{"role": "user", "content": QUESTION}]
PROMPT = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
WARM: dict[str, Any] = {"temperature": 1.0, "seed": 11, "max_tokens": 40}


@pytest.fixture
def client(server: Server) -> openai.OpenAI:
    return server.openai()


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(model="tiny", messages=MESSAGES, **fields)


def test_n_choices_and_the_same_seed_twice(client: openai.OpenAI) -> None:
    first, second = chat(client, n=2, **WARM), chat(client, n=2, **WARM)
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in second.choices]
    alone = [chat(client, **(WARM | {"seed": WARM["seed"] + i})).choices[0].message.content for i in range(2)]
    assert texts == alone
    assert first.usage.prompt_tokens == chat(client, max_tokens=1).usage.prompt_tokens
    details = first.usage.completion_tokens_details
    assert details.accepted_prediction_tokens == first.simsd["accepted"]
    assert details.rejected_prediction_tokens == first.simsd["drafted"] - first.simsd["accepted"]


def test_streamed_choices(client: openai.OpenAI) -> None:
    whole = chat(client, n=2, **WARM)
    texts = {0: "", 1: ""}
    ends: dict[int, str] = {}
    usage = None
    for chunk in chat(client, n=2, **WARM, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
    assert [texts[0], texts[1]] == [choice.message.content for choice in whole.choices]
    assert [ends[0], ends[1]] == [choice.finish_reason for choice in whole.choices]
    assert usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_stop(client: openai.OpenAI) -> None:
    text = chat(client).choices[0].message.content
    for stop in (text[3:6], ["nowhere to be found", text[3:6]]):
        choice = chat(client, stop=stop).choices[0]
        assert (choice.message.content, choice.finish_reason) == (text[: text.index(text[3:6])], "stop")


def test_chat_logprobs(client: openai.OpenAI) -> None:
    """Greedy in the target's own order: each token is the likeliest where it was revealed."""
    answer = chat(client, logprobs=True, top_logprobs=3, extra_body={"simsd": {"method": "vanilla"}})
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    assert b"".join(bytes(one.bytes) for one in content).decode() == answer.choices[0].message.content
    for one in content:
        assert one.logprob <= 0
        assert one.token == one.top_logprobs[0].token
        assert one.logprob == pytest.approx(one.top_logprobs[0].logprob)
        assert len(one.top_logprobs) == 3
        assert [top.logprob for top in one.top_logprobs] == sorted(top.logprob for top in one.top_logprobs)[::-1]


def test_completions_of_a_list_with_echo_and_logprobs(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="tiny", prompt=[PROMPT, "One two"], echo=True, logprobs=2, max_tokens=6, temperature=0, n=2
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    for choice in answer.choices:
        assert choice.text.startswith(PROMPT if choice.index < 2 else "One two")
        logprobs = choice.logprobs
        assert logprobs is not None
        assert logprobs.tokens is not None
        assert logprobs.token_logprobs is not None
        assert logprobs.text_offset is not None
        assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset)
        ends = [*logprobs.text_offset[1:], len(choice.text)]
        pieces = [choice.text[a:b] for a, b in zip(logprobs.text_offset, ends, strict=True)]
        assert pieces == logprobs.tokens
        assert all(logprob <= 0 for logprob in logprobs.token_logprobs)
    assert answer.choices[0].text == answer.choices[1].text, "greedy"


def test_scoring_a_prompt(client: openai.OpenAI) -> None:
    """What evaluation harnesses do: log-probabilities of a given answer. The right one is likelier."""

    def score(text: str) -> float:
        answer = client.completions.create(model="tiny", prompt=PROMPT + text, echo=True, logprobs=1, max_tokens=0)
        logprobs = answer.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.token_logprobs is not None
        assert logprobs.text_offset is not None
        assert answer.choices[0].text == PROMPT + text
        return sum(
            logprob
            for logprob, offset in zip(logprobs.token_logprobs, logprobs.text_offset, strict=True)
            if offset >= len(PROMPT)
        )

    text = chat(client).choices[0].message.content
    assert score(text) > score(text.replace("Paris", "Lima"))


def test_logit_bias_and_min_tokens(client: openai.OpenAI, server: Server) -> None:
    with server.client() as http:
        tokens = http.post("/tokenize", json={"prompt": " Paris"}).json()["tokens"]
    banned = chat(client, logit_bias={str(token): -100 for token in tokens})
    assert " Paris" not in banned.choices[0].message.content
    short = chat(client).usage.completion_tokens
    longer = chat(client, extra_body={"min_tokens": short + 5}, max_tokens=short + 20)
    assert longer.usage.completion_tokens >= short + 5


def test_errors_are_the_clients_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, temperature=-1)
    assert refused.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-4", messages=MESSAGES)
    with pytest.raises(openai.BadRequestError, match="response_format"):
        chat(client, response_format={"type": "json_object"})


def test_request_ids(client: openai.OpenAI) -> None:
    answer = chat(client, max_tokens=1, extra_headers={"x-request-id": "my-own-id"})
    assert answer._request_id == "my-own-id"
    assert chat(client, max_tokens=1)._request_id


def test_events_of_rounds(client: openai.OpenAI) -> None:
    """They say how every token of the answer came about, before it is seen."""
    stream = chat(client, logprobs=True, stream=True, extra_body={"simsd": {"events": True, "method": "simsd"}})
    revealed: dict[int, str] = {}
    shown = 0
    for chunk in stream:
        if event := (getattr(chunk, "simsd", None) or {}).get("event"):
            for reveal in event["reveals"]:
                assert event["start"] <= reveal["index"] < event["start"] + event["block_size"]
                assert reveal["index"] not in revealed
                revealed[reveal["index"]] = reveal["text"]
        for choice in chunk.choices:
            for one in choice.logprobs.content if choice.logprobs else []:
                assert revealed[shown] == one.token
                shown += 1
    assert shown > 3


async def test_asyncio(server: Server) -> None:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=TIMEOUT_S) as client:
        whole = await client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=0)
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=0, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == whole.choices[0].message.content
        assert [model.id async for model in await client.models.list()] == ["tiny"]
        assert (await client.models.retrieve("tiny")).id == "tiny"
