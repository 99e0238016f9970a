"""The target as its own drafter: `exact` and `simsd` without a draft model, and S2D2 against a plain reference."""

import dataclasses
import itertools

import pytest
import torch
from torch import Tensor

from simsd.config import LoopConfig
from simsd.errors import RequestError
from simsd.in_process import Completion, LocalClient, generate_all
from simsd.loop.loop import Loop
from simsd.loop.routing import Router, expected_accepted
from simsd.messages.request import DecodeParams, Remasking, Request
from simsd.tokens.tokenizer import Tokenizer
from simsd.worker.worker import Worker
from tests import oracle
from tests.unit import pairs
from tests.unit.loops import Pair, request
from tests.unit.toy_tokenizer import MASK_ID

B = 4
REMASKINGS: tuple[Remasking, ...] = ("static", "dynamic", "sequential", "entropy")


def without_draft(pair: Pair) -> Loop:
    """A loop over the target alone."""
    return Loop(LocalClient(pair.worker("target")), None, Tokenizer.load(pair.target), LoopConfig())


def answers(loop: Loop, requests: list[Request]) -> list[list[int]]:
    return [completion.token_ids for completion in generate_all(loop, requests)]


def grid(method: str) -> list[Request]:
    """Every remasking, temperature and number of steps, with prompts of every length mod B."""
    combos = itertools.product(REMASKINGS, (0.0, 1.0), (4, 2, 3))
    return [
        request(
            str(i), 20 + i, method=method, drafter="self", remasking=remasking, temperature=temperature, steps=steps
        )
        for i, (remasking, temperature, steps) in enumerate(combos)
    ]


@pytest.mark.parametrize(("budget", "depth"), [(0, 0), (8, 0), (0, 1), (12, 3)])
def test_exact_without_a_draft_is_vanilla(pair: Pair, budget: int, depth: int) -> None:
    exact = [
        dataclasses.replace(r, params=dataclasses.replace(r.params, row_budget=budget, lookahead=depth))
        for r in grid("exact")
    ]
    plain = answers(without_draft(pair), grid("vanilla"))
    assert answers(without_draft(pair), exact) == plain
    alone = [generate_all(without_draft(pair), [each])[0].token_ids for each in exact[::5]]
    assert alone == plain[::5]


@pytest.mark.parametrize("method", ["exact", "simsd", "s2d2"])
def test_it_saves_forwards_on_the_shipped_target(method: str) -> None:
    """And answers as well as the target does; without a draft worker, so without draft forwards."""
    loop = pairs.loop_of(B)
    asked = pairs.heldout(5)
    prompts = [pairs.chat(question.prompt) for question in asked]
    params = {"drafter": "self", "remasking": "dynamic" if method == "s2d2" else "static", "max_tokens": 64}
    fast = generate_all(
        loop,
        [Request(str(i), p, DecodeParams(method=method, **params)) for i, p in enumerate(prompts)],  # type: ignore[arg-type]
    )
    slow = generate_all(
        loop, [Request(str(i), p, DecodeParams(method="vanilla", max_tokens=64)) for i, p in enumerate(prompts)]
    )
    forwards = [sum(c.stats.target_forwards for c in each) for each in (fast, slow)]
    assert sum(c.stats.draft_forwards for c in fast) == 0
    assert sum(c.stats.accepted for c in fast) > 100
    assert forwards[0] < 0.8 * forwards[1]
    if method == "exact":
        assert [c.token_ids for c in fast] == [c.token_ids for c in slow]


@pytest.mark.parametrize("method", ["exact", "simsd"])
def test_it_reads_the_next_block_beside_this_one(method: str) -> None:
    """With `lookahead` a block that stands is followed by a step in the next one, in the same forward."""
    loop = pairs.loop_of(B)
    prompts = [pairs.chat(question.prompt) for question in pairs.heldout(2)]

    def decoded(depth: int) -> list[Completion]:
        params = DecodeParams(
            method=method,  # type: ignore[arg-type]
            drafter="self",
            layout="branches",
            remasking="sequential",
            max_tokens=32,
            lookahead=depth,
        )
        return generate_all(loop, [Request(str(i), p, params) for i, p in enumerate(prompts)])

    plain, ahead = decoded(0), decoded(1)
    assert [c.token_ids for c in ahead] == [c.token_ids for c in plain]
    assert sum(c.stats.bonus for c in ahead) > 0
    assert sum(c.stats.target_forwards for c in ahead) < 0.85 * sum(c.stats.target_forwards for c in plain)


def causal_logits(worker: Worker, tokens: list[int], start: int, offsets: list[int]) -> Tensor:
    """[len(offsets), V]: the block read from left to right, a mask row beside it at each of `offsets`."""
    size = len(tokens) - start
    everything = tokens + [MASK_ID] * len(offsets)
    length = len(tokens)
    seen = torch.zeros(len(everything), len(everything), dtype=torch.bool)
    seen[:length, :length] = oracle.block_causal(length, size)
    seen[start:length, start:length] = torch.ones(size, size, dtype=torch.bool).tril()
    positions = [*range(length), *(start + offset for offset in offsets)]
    for i, offset in enumerate(offsets):
        seen[length + i, : start + offset] = True
        seen[length + i, length + i] = True

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
        return out[0].transpose(0, 1).flatten(1)

    with torch.inference_mode():
        hidden = worker.model(torch.tensor(everything), torch.tensor(positions), attend)
        logits = worker.model.logits(hidden[length:])
    logits = logits.clone()
    logits[:, MASK_ID] = -torch.inf
    return logits


def reference_s2d2(worker: Worker, prompt: list[int], params: DecodeParams) -> tuple[list[int], int]:
    """Greedy S2D2 (docs/algorithm.md), a forward at a time and without a cache; returns the answer and the forwards."""
    tokens, forwards = list(prompt), 0
    router = Router(params)
    while len(tokens) < len(prompt) + params.max_tokens or MASK_ID in tokens:
        start = len(tokens) // B * B
        tokens += [MASK_ID] * (start + B - len(tokens))
        step = 0
        while MASK_ID in tokens:
            logits = oracle.dense_logits(worker.model, tokens, oracle.block_causal(len(tokens), B))
            logits[:, MASK_ID] = -torch.inf
            forwards += 1
            probs = logits.softmax(dim=-1)
            still_open = [i for i, token in enumerate(tokens) if token == MASK_ID]
            best = {i: int(logits[i].argmax()) for i in still_open}
            sure = sorted(still_open, key=lambda i: (-float(probs[i].max()), i))
            quota = min(len(still_open), max(1, B // params.steps + (step < B % params.steps)))
            above = [i for i in sure if float(probs[i].max()) > params.threshold]
            plain = sure[: max(quota, len(above))] if params.remasking == "dynamic" else sure[:quota]
            span = [i for n, i in enumerate(still_open) if i == still_open[0] + n]
            top = probs[span].topk(2).values
            if params.routing_score == "margin":
                chances = [float(gap > 0.05) for gap in top[:, 0] - top[:, 1]]
            else:
                entropy = torch.special.entr(probs[span]).sum(dim=-1)
                chances = torch.exp(-entropy / torch.tensor(float(probs.shape[-1])).log()).tolist()
            step += 1
            if not router.verify(chances):
                router.learn(False, len(plain), B)
                for i in plain:
                    tokens[i] = best[i]
                continue
            filled = [best.get(i, token) for i, token in enumerate(tokens)]
            verifier = causal_logits(worker, filled, start, [i - start for i in span]).argmax(dim=-1).tolist()
            forwards += 1
            revealed = []
            for i, token in zip(span, verifier, strict=True):
                tokens[i] = token
                revealed.append(i)
                if token != best[i]:
                    break
            router.learn(True, len(revealed), B)
            for i in plain:
                if len(revealed) < quota and i not in revealed:
                    tokens[i] = best[i]
                    revealed.append(i)
    return tokens[len(prompt) : len(prompt) + params.max_tokens], forwards


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"steps": 2},
        {"remasking": "dynamic", "threshold": 0.02},
        {"routing": "score", "routing_score": "entropy", "routing_cost": 1.2},
        {"routing": "score", "routing_cost": 2.0, "steps": 3},
        {"routing": "hysteresis", "routing_score": "entropy", "routing_cost": 1.3},
        {"routing": "ucb"},
    ],
)
def test_s2d2_is_what_the_paper_says(pair: Pair, params: dict[str, object]) -> None:
    """Tokens and number of forwards, alone and beside others; EOS ignored, so that long answers are compared."""
    worker = pair.worker("target")
    requests = [request(f"s{n}", n, method="s2d2", **params) for n in (5, 18, 40)]
    for each, completion in zip(requests, generate_all(without_draft(pair), requests), strict=True):
        tokens, forwards = reference_s2d2(worker, each.prompt_ids, each.params.resolve(B))
        assert completion.token_ids == tokens
        prefill = completion.stats.rounds - forwards
        assert 0 <= prefill <= 1, "one forward prefills a prompt of more than a block"


def test_s2d2_at_temperature_one_depends_on_the_seed_alone(pair: Pair) -> None:
    requests = [request(f"t{n}", n, method="s2d2", temperature=1.0, seed=n, top_k=20) for n in (5, 18, 40)]
    together = answers(without_draft(pair), requests)
    assert together == [answers(without_draft(pair), [each])[0] for each in requests]
    other = [dataclasses.replace(r, params=dataclasses.replace(r.params, seed=r.params.seed + 1)) for r in requests]
    assert together != answers(without_draft(pair), other)


def test_routing() -> None:
    assert expected_accepted([1.0, 1.0, 0.5]) == 2.5
    assert expected_accepted([0.5, 0.5]) == 0.75
    score = Router(DecodeParams(method="s2d2", routing="score", routing_cost=1.0))
    assert [score.verify(a) for a in ([1.0, 1.0], [1.0], [0.9])] == [True, False, False]
    memory = Router(DecodeParams(method="s2d2", routing="hysteresis", routing_cost=1.0))
    assert [memory.verify(a) for a in ([0.5], [1.0, 1.0], [0.5], [0.0], [0.5])] == [True, True, True, False, False]
    bandit = Router(DecodeParams(method="s2d2", routing="ucb"))
    chosen = []
    for _ in range(200):
        chosen.append(bandit.verify([1.0]))
        bandit.learn(chosen[-1], 4 if chosen[-1] else 1, B)
    assert sum(chosen[-100:]) > 60


def test_a_draft_model_is_asked_for_by_name(pair: Pair) -> None:
    with pytest.raises(RequestError, match="needs a draft model"):
        without_draft(pair).check(request("x", 9, method="exact"))
    with pytest.raises(RequestError, match="drafter must be one of model, self"):
        DecodeParams(drafter="nobody")  # type: ignore[arg-type]
