"""The real application, the real pair, over HTTP."""

import concurrent.futures
import json
import subprocess
from typing import Any

import pytest

from simsd.tokens.tokenizer import Tokenizer
from tests.serve.cluster import pids_of
from tests.serve.server.conftest import Server

QUESTION = "What is the capital of France?"
METHODS: list[dict[str, Any]] = [{"method": "vanilla"}, {"method": "simsd"}, {"method": "exact"}]


def chat(server: Server, question: str = QUESTION, **fields: Any) -> Any:
    messages: Any = [{"role": "user", "content": question}]
    return server.openai().chat.completions.create(model="tiny", messages=messages, **fields)


def test_chat_answers(server: Server) -> None:
    answer = chat(server)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens > 0
    assert answer.simsd["rounds"] > 0
    assert answer.simsd["draft_forwards"] > 0


@pytest.mark.parametrize("options", METHODS, ids=lambda options: str(options["method"]))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_streamed_is_not_streamed(server: Server, options: dict[str, Any], temperature: float) -> None:
    fields = {"temperature": temperature, "seed": 5, "max_tokens": 60, "extra_body": {"simsd": options}}
    whole = chat(server, **fields)
    chunks = list(chat(server, **fields, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage


def test_exact_is_vanilla(server: Server) -> None:
    texts = {
        chat(server, temperature=1.0, seed=3, extra_body={"simsd": options}).choices[0].message.content
        for options in ({"method": "exact"}, {"method": "vanilla"})
    }
    assert len(texts) == 1


def test_blocks_beyond_the_open_one_take_fewer_forwards_for_the_same_text(server: Server) -> None:
    question = "Mia buys 4 bags of 17 stamps and gives away 9. How many stamps are left?"
    options = {"method": "exact", "remasking": "dynamic", "draft_steps": 1}
    answers = [
        chat(server, question, temperature=temperature, seed=5, extra_body={"simsd": options | {"lookahead": depth}})
        for temperature in (0.0, 1.0)
        for depth in (0, 2)
    ]
    for alone, ahead in (answers[:2], answers[2:]):
        assert ahead.choices[0].message.content == alone.choices[0].message.content
        assert ahead.simsd["target_forwards"] < alone.simsd["target_forwards"]


def test_completions(server: Server) -> None:
    prompt = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    client = server.openai()
    whole = client.completions.create(model="tiny", prompt=prompt, temperature=0)
    assert "Paris" in whole.choices[0].text
    parts = client.completions.create(model="tiny", prompt=prompt, temperature=0, stream=True)
    assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text
    # A chat is its rendered prompt.
    assert whole.choices[0].text == chat(server).choices[0].message.content


def test_curl_without_content_type(server: Server) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": QUESTION}]})
    command = ["curl", "-sS", f"{server.url}/v1/chat/completions", "-d", body]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert "Paris" in answer["choices"][0]["message"]["content"]


def test_stop_string_and_max_tokens(server: Server) -> None:
    text = chat(server).choices[0].message.content
    stopped = chat(server, stop=[text[2:5]])
    assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == (text[:2], "stop")
    cut = chat(server, max_tokens=2)
    assert text.startswith(cut.choices[0].message.content)
    assert (cut.usage.completion_tokens, cut.choices[0].finish_reason) == (2, "length")


def test_over_the_context(server: Server) -> None:
    with server.client() as client:
        for prompt, max_tokens in (([10] * 5000, 1), ([10] * 5000, None), ([10], 10**6)):
            response = client.post("/v1/completions", json={"prompt": prompt, "max_tokens": max_tokens})
            assert response.status_code == 400, response.text
            assert response.json()["error"]["code"] == "context_length_exceeded"


def test_the_longest_prompt_that_fits(server: Server, tokenizer: Tokenizer) -> None:
    """No max_tokens: the answer gets what is left."""
    with server.client() as client:
        error = client.post("/v1/completions", json={"prompt": [10] * 5000}).json()["error"]["message"]
        limit = int(error.split("context of ")[1].split()[0])
        response = client.post("/v1/completions", json={"prompt": [10] * (limit - 3)})
        assert response.status_code == 200, response.text
        assert response.json()["usage"]["completion_tokens"] <= 3


def test_many_at_once_answer_as_alone(server: Server) -> None:
    questions = [f"What is {a} + {a + 2}?" for a in range(2, 10)]
    alone = [chat(server, q).choices[0].message.content for q in questions]
    with concurrent.futures.ThreadPoolExecutor(len(questions)) as pool:
        together = list(pool.map(lambda q: chat(server, q).choices[0].message.content, questions))
    assert together == alone


def test_health_and_models(server: Server) -> None:
    with server.client() as client:
        assert client.get("/health").json()["status"] == "ok"
    assert [model.id for model in server.openai().models.list()] == ["tiny"]


def test_only_engines_load_torch(server: Server) -> None:
    def loads_torch(pid: int) -> bool:
        with open(f"/proc/{pid}/maps") as maps:
            return any("libtorch" in line for line in maps)

    for title in ("ray::ServeReplica:simsd:Ingress", "ray::ServeReplica:simsd:Coordinator"):
        found = pids_of(title)
        assert found, title
        assert not any(loads_torch(pid) for pid in found), title
    assert all(loads_torch(pid) for pid in pids_of("ray::Engine"))
