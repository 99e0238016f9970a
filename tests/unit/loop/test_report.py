"""What is told beside the text: log-probabilities, rounds as they happen, the prompt's own likelihood."""

import asyncio
import math

import pytest
from torch import Tensor

from simsd.errors import RequestError
from simsd.in_process import generate_all
from simsd.messages.request import DecodeParams, Output, Report, Request, RoundEvent, TokenLogprob
from simsd.worker.worker import Worker
from tests import oracle
from tests.unit.loops import Pair, request
from tests.unit.toy_tokenizer import MASK_ID

B = 4
PROMPTS = (7, 33, 100)


@pytest.fixture(scope="module")
def workers(pair: Pair) -> tuple[Worker, Worker]:
    return pair.worker("target"), pair.worker("draft")


def outputs(pair: Pair, workers: tuple[Worker, Worker], requests: list[Request]) -> list[list[Output]]:
    """All outputs of each request, decoded together."""
    loop = pair.loop(*workers)

    async def one(each: Request) -> list[Output]:
        return [output async for output in loop.generate(each)]

    async def run() -> list[list[Output]]:
        rounds = asyncio.create_task(loop.run())
        try:
            return await asyncio.gather(*(one(each) for each in requests))
        finally:
            rounds.cancel()

    return asyncio.run(run())


def log_probs(worker: Worker, tokens: list[int]) -> Tensor:
    """The plain model's log-probabilities [T, V] of a text with masks in it."""
    logits = oracle.dense_logits(worker.model, tokens, oracle.block_causal(len(tokens), B))
    logits[:, MASK_ID] = -math.inf
    return logits.log_softmax(dim=-1)


def with_report(name: str, prompt: int, report: Report, **params: object) -> Request:
    plain = request(name, prompt, **params)  # type: ignore[arg-type]
    return Request(plain.request_id, plain.prompt_ids, plain.params, report)


def check(entry: TokenLogprob, row: Tensor, token: int, top: int) -> None:
    assert entry.logprob == pytest.approx(float(row[token]), abs=1e-3)
    best = row.topk(top)
    assert [value for _, value in entry.top] == pytest.approx(best.values.tolist(), abs=1e-3)
    assert len({token for token, _ in entry.top}) == top


@pytest.mark.parametrize(
    "params",
    [
        {"method": "vanilla"},
        {"method": "vanilla", "temperature": 1.0, "remasking": "sequential"},
        {"method": "exact", "temperature": 1.0},
        {"method": "exact", "lookahead": 2, "remasking": "sequential"},
        {"method": "simsd", "layout": "branches", "lookahead": 3, "temperature": 1.0},
        {"method": "simsd", "layout": "branches", "temperature": 1.0, "draft_steps": 1},
        {"method": "simsd", "layout": "branches", "gamma": 3, "fallback": "target", "top_k": 5, "temperature": 0.7},
    ],
)
def test_events_tell_the_whole_story(pair: Pair, workers: tuple[Worker, Worker], params: dict[str, object]) -> None:
    """Replayed reveal by reveal, the events give the answer, and each state gives the reported log-probabilities."""
    report = Report(logprobs=3, events=True)
    requests = [with_report(f"r{n}", n, report, seed=n, **params) for n in PROMPTS]
    kinds = set()
    for each, parts in zip(requests, outputs(pair, workers, requests), strict=True):
        answer = [token for part in parts for token in part.token_ids]
        told = [entry for part in parts for entry in part.logprobs]
        assert len(told) == len(answer) == 22
        prompt, size = each.prompt_ids, len(each.prompt_ids)
        tokens = list(prompt)
        counted = {"accepted": 0, "recovered": 0, "bonus": 0, "denoised": 0}
        drafted = 0
        for event in (event for part in parts for event in part.events):
            assert (size + event.start) % B == 0
            tokens += [MASK_ID] * (size + event.start + B - len(tokens))
            drafted += len(event.drafted)
            for i, (index, token, kind) in enumerate(event.reveals):
                assert tokens[size + index] == MASK_ID
                if index < len(answer):
                    assert token == answer[index]
                    check(told[index], log_probs(workers[0], tokens)[size + index], token, 3)
                if kind == "accepted" and params["method"] == "simsd":
                    assert event.drafted[i] == (index, token)
                tokens[size + index] = token
                counted[kind] += 1
                kinds.add(kind)
        stats = parts[-1].stats
        assert stats is not None
        assert (stats.drafted, stats.accepted) == (drafted, counted["accepted"])
        assert (stats.recovered, stats.bonus) == (counted["recovered"], counted["bonus"])
        assert tokens[size : size + len(answer)] == answer
    if params["method"] == "vanilla":
        assert kinds == {"denoised"}
    else:
        assert {"accepted", "recovered"} <= kinds


def test_rounds_are_numbered_and_come_when_they_happen(pair: Pair, workers: tuple[Worker, Worker]) -> None:
    """Also those that make nothing visible, as when a block fills from the right."""
    (parts,) = outputs(pair, workers, [with_report("e", 8, Report(events=True), method="vanilla")])
    events: list[RoundEvent] = [event for part in parts for event in part.events]
    assert all(len(part.events) == 1 for part in parts)
    assert [event.round for event in events] == sorted({event.round for event in events})
    assert any(part.events and not part.token_ids for part in parts)


@pytest.mark.parametrize(
    "params",
    [
        *({"method": method} for method in ("vanilla", "simsd", "exact")),
        {"method": "simsd", "drafter": "self"},
        {"method": "exact", "drafter": "self", "temperature": 1.0},
        {"method": "simsd", "adaptive": True},
        {"method": "s2d2"},
        {"method": "s2d2", "temperature": 1.0},
        {"method": "s2d2", "routing": "ucb", "remasking": "dynamic", "threshold": 0.3},
        {"method": "s2d2", "routing": "score", "routing_cost": 100.0},
    ],
)
def test_every_round_has_an_event(pair: Pair, workers: tuple[Worker, Worker], params: dict[str, object]) -> None:
    """But for those that only read the prompt; put together, the events are the answer and its counts."""
    for n in (4, 7):  # prompts that need no round of their own, because the first one commits their only whole block
        [parts] = outputs(pair, workers, [with_report(f"e{n}", n, Report(events=True), seed=n, **params)])
        events = [event for part in parts for event in part.events]
        stats = parts[-1].stats
        assert stats is not None
        assert [event.round for event in events] == list(range(1, stats.rounds + 1))
        reveals = [each for event in events for each in event.reveals]
        told = {index: token for index, token, _ in reveals}
        assert len(told) == len(reveals)
        assert [told[i] for i in range(22)] == [token for part in parts for token in part.token_ids]
        assert sum(len(event.drafted) for event in events) == stats.drafted
        assert sum(kind == "accepted" for _, _, kind in reveals) == stats.accepted


def test_nothing_is_told_unasked(pair: Pair, workers: tuple[Worker, Worker]) -> None:
    silent = request("silent", 9)
    parts, others = outputs(pair, workers, [silent, with_report("loud", 9, Report(logprobs=20, events=True))])
    assert all(not (part.logprobs or part.events or part.prompt_logprobs) for part in parts)
    assert any(part.logprobs for part in others)


def test_what_is_told_does_not_change_the_answer(pair: Pair) -> None:
    requests = [request(method, 19, method=method, temperature=1.0) for method in ("vanilla", "simsd", "exact")]
    report = Report(logprobs=1, prompt=True, events=True)
    loud = [Request(r.request_id, r.prompt_ids, r.params, report) for r in requests]
    answers = [
        [c.token_ids for c in generate_all(pair.loop(pair.worker("target"), pair.worker("draft")), batch)]
        for batch in (requests, loud)
    ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("method", ["vanilla", "simsd"])
@pytest.mark.parametrize("length", [1, 4, 7, 32])
def test_a_prompts_own_log_probabilities(pair: Pair, workers: tuple[Worker, Worker], method: str, length: int) -> None:
    """Each token's, with what is left of it revealed and the rest of its block open."""
    asked = with_report("p", length, Report(logprobs=2, prompt=True), method=method)
    parts, neighbour = outputs(pair, workers, [asked, request("n", 50)])
    told = [entry for part in parts for entry in part.prompt_logprobs]
    assert len(told) == length
    assert sum(len(part.token_ids) for part in parts) == 22
    assert neighbour[-1].finish_reason == "length"
    for i, token in enumerate(asked.prompt_ids):
        state = asked.prompt_ids[:i] + [MASK_ID] * (B - i % B)
        check(told[i], log_probs(workers[0], state)[i], token, 2)


@pytest.mark.parametrize("method", ["vanilla", "simsd"])
def test_what_steers_the_answer_does_not_change_the_prompts_log_probabilities(
    pair: Pair, workers: tuple[Worker, Worker], method: str
) -> None:
    """The prompt ends inside a block and has an end of turn in it; min_tokens and a bias are about the answer."""
    eos = workers[0].info.eos_token_ids[0]
    prompt = request("p", 10).prompt_ids
    prompt[5] = prompt[9] = eos
    steered = {"min_tokens": 6, "logit_bias": ((7, 5.0), (eos, 100.0))}
    asked = []
    for name, settings in (("plain", {}), ("steered", steered)):
        params = DecodeParams(method=method, max_tokens=12, **settings)  # type: ignore[arg-type]
        asked.append(Request(name, prompt, params, Report(logprobs=2, prompt=True)))
    for parts in outputs(pair, workers, asked):
        told = [entry for part in parts for entry in part.prompt_logprobs]
        assert len(told) == len(prompt)
        for i, token in enumerate(prompt):
            state = prompt[:i] + [MASK_ID] * (B - i % B)
            check(told[i], log_probs(workers[0], state)[i], token, 2)
    answer = [token for part in parts for token in part.token_ids]
    assert len(answer) == 6, "the bias makes EOS the best token, and min_tokens keeps it out before"


def test_logprobs_of_the_prompt_need_logprobs() -> None:
    with pytest.raises(RequestError, match="need logprobs"):
        Report(prompt=True)
    with pytest.raises(RequestError, match="between 0 and 20"):
        Report(logprobs=21)


METHODS = pytest.mark.parametrize("method", ["vanilla", "simsd", "exact"])


@METHODS
def test_a_bias_forces_and_forbids(pair: Pair, workers: tuple[Worker, Worker], method: str) -> None:
    for temperature in (0.0, 1.0):
        forced = request("f", 9, method=method, temperature=temperature, logit_bias=((7, 100.0),))
        forbidden = request("g", 9, method=method, temperature=temperature, logit_bias=((7, -100.0),))
        free = request("h", 9, method=method, temperature=temperature)
        a, b, c = (
            [t for p in parts for t in p.token_ids] for parts in outputs(pair, workers, [forced, forbidden, free])
        )
        assert a == [7] * 22
        assert 7 not in b
        assert 7 not in c or b != c


def test_a_biased_token_must_exist(pair: Pair, workers: tuple[Worker, Worker]) -> None:
    loop = pair.loop(*workers)
    with pytest.raises(RequestError, match="logit_bias has token id 99999"):
        loop.check(request("x", 9, logit_bias=((99999, 1.0),)))


@METHODS
def test_no_end_before_min_tokens(pair: Pair, workers: tuple[Worker, Worker], method: str) -> None:
    """With EOS by far the likeliest token everywhere, answers are as long as asked, to the token."""
    eos = workers[0].info.eos_token_ids[0]
    for n in (0, 1, 5, 6):
        params = DecodeParams(method=method, max_tokens=12, min_tokens=n, logit_bias=((eos, 100.0),))  # type: ignore[arg-type]
        plain = request("m", 10)
        (parts,) = outputs(pair, workers, [Request("m", plain.prompt_ids, params)])
        assert sum(len(part.token_ids) for part in parts) == n
        assert parts[-1].finish_reason == "stop"


def test_min_p_leaves_the_likely_tokens(pair: Pair, workers: tuple[Worker, Worker]) -> None:
    """min_p 1 leaves the best alone: sampling becomes greedy."""
    shared = {"method": "vanilla", "remasking": "sequential"}
    ids = request("a", 9).prompt_ids
    settings = ({}, {"temperature": 1.0, "min_p": 1.0}, {"temperature": 1.0})
    requests = [Request(str(i), ids, DecodeParams(max_tokens=20, **shared, **s)) for i, s in enumerate(settings)]  # type: ignore[arg-type]
    greedy, narrow, free = ([t for p in parts for t in p.token_ids] for parts in outputs(pair, workers, requests))
    assert narrow == greedy
    assert free != greedy
