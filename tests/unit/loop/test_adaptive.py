"""Adaptive drafting: its estimates, its choices where the right one is known, and exact's text whatever it chooses."""

import dataclasses
import random

import pytest

from simsd.loop.adaptive import MARGIN, Adaptive, Choice, Costs, Line
from simsd.messages.request import DecodeParams, RevealKind
from simsd.messages.round import BlockVerdict, Verdict, Verdicts
from tests.unit import pairs

B = 4


def measured(rows: int, target_s: float, draft_rows: int = 0, draft_s: float = 0.0) -> Verdicts:
    return Verdicts(
        {"a": Verdict(0)},
        1,
        rows,
        target_s,
        draft_forwards=int(draft_rows > 0),
        draft_rows=draft_rows,
        draft_s=draft_s,
    )


def costs(fixed: float, each: float, draft_fixed: float, draft_each: float) -> Costs:
    learned, rng = Costs(), random.Random(1)
    for _ in range(200):
        rows, drafted = rng.randrange(4, 64), rng.randrange(4, 32)
        learned.learn(measured(rows, fixed + each * rows, drafted, draft_fixed + draft_each * drafted), 64)
    return learned


def test_a_line_is_found_again_and_survives_an_outlier() -> None:
    line, rng = Line(), random.Random(1)
    for _ in range(100):
        rows = rng.randrange(4, 64)
        line.learn(rows, 0.002 + 0.0001 * rows)
    assert line.fit() == pytest.approx((0.002, 0.0001), rel=0.02)
    line.learn(30, 60.0)
    fixed, each = line.fit()
    assert fixed + 30 * each < 0.006


def test_forwards_that_were_all_alike() -> None:
    line = Line()
    for _ in range(20):
        line.learn(8, 0.004)
    assert line.fit() == pytest.approx((0.002, 0.002 / 8))
    assert Line().fit() == (0.0, 0.0)


def decided(choice: Choice, kinds: list[RevealKind]) -> Verdict:
    return Verdict(0, [BlockVerdict([(0, 0)] * len(kinds), kinds, drafted=choice.gamma)])


def settle(adaptive: Adaptive, learned: Costs, accepts: float, running: int, rounds: int = 150) -> list[Choice]:
    """Choices of fresh blocks in a world where each drafted token stands with probability `accepts`."""
    rng, made = random.Random(2), []
    for _ in range(rounds):
        choice = adaptive.choose(learned, B, running)
        made.append(choice)
        stood = 0
        while stood < choice.gamma and rng.random() < accepts:
            stood += 1
        fell = choice.gamma > 0 and stood < choice.gamma
        kinds: list[RevealKind] = ["accepted"] * stood + ["recovered" if fell else "bonus"] * (stood < B)
        adaptive.learn(learned, decided(choice, kinds))
    return made[-50:]


def adaptive(**settings: object) -> Adaptive:
    return Adaptive(DecodeParams(adaptive=True, **settings).resolve(B), B)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("accepts", "draft_s", "wanted"),
    [
        (0.97, 0.0003, lambda choice: choice.gamma == B),  # a good cheap draft: all of the block, in one forward
        (0.02, 0.0003, lambda choice: choice.gamma == 0),  # one that is always wrong: none
        (0.97, 0.0200, lambda choice: choice.gamma == 0),  # one that costs more than the target: none
    ],
)
def test_it_settles_on_what_pays(accepts: float, draft_s: float, wanted: object) -> None:
    learned = costs(0.003, 0.0001, draft_s, 0.00001)
    made = settle(adaptive(), learned, accepts, running=1)
    assert sum(map(wanted, made)) >= 40  # type: ignore[call-overload]
    assert all(choice.draft_steps <= 1 for choice in made if wanted(choice))  # type: ignore[operator]


def test_what_the_target_reveals_by_itself_is_learnt() -> None:
    """Dynamic steps that fill the block at once leave nothing to draft for."""
    learned, exact = costs(0.003, 0.0001, 0.0003, 0.00001), adaptive(method="exact", remasking="dynamic")
    made = []
    for _ in range(100):
        choice = exact.choose(learned, B, 1)
        made.append(choice.gamma)
        exact.learn(learned, decided(choice, ["accepted"] * (B - 1) + ["bonus"]))
    assert sum(gamma == 0 for gamma in made[-50:]) == 50


def test_methods_do_not_learn_from_each_other() -> None:
    """What `simsd` is always right with says nothing of `exact`, which comes to know that its drafts are useless."""
    learned = costs(0.003, 0.0001, 0.0003, 0.00001)
    settle(adaptive(method="exact"), learned, 0.02, running=1)
    settle(adaptive(), learned, 0.97, running=1)
    assert adaptive(method="exact").choose(learned, B, 1).gamma == 0
    assert adaptive().choose(learned, B, 1).gamma == B


def test_rows_decide_when_the_batch_is_large() -> None:
    """Alone, a forward costs the same whatever its rows: drafting pays. With 64 beside it, rows are all there is."""
    learned = costs(0.02, 0.0004, 0.0004, 0.00004)
    alone = settle(adaptive(layout="branches"), learned, 0.5, running=1)
    assert sum(choice.gamma > 0 for choice in alone) > 40
    crowd = settle(adaptive(layout="branches"), learned, 0.5, running=64)
    assert sum(choice.gamma == 0 for choice in crowd) > 40


def test_blocks_beyond_cost_and_bring() -> None:
    """They are counted where the open block is drafted whole: their tokens, their rows, and the draft's forwards."""
    learned, near, far = costs(0.003, 0.0001, 0.0003, 0.00001), adaptive(draft_steps=1), adaptive(draft_steps=1)
    far.params = dataclasses.replace(far.params, lookahead=2)
    whole, part = Choice(B, 1, 8 * B), Choice(B - 1, 1, 8 * B)
    seconds = [learned.of_round(whole, each.params, B, B, 1) for each in (near, far)]
    rows, draft = 2 * (2 * B + B), 2 * (0.0003 + 0.00001 * B)
    assert seconds[1] - seconds[0] == pytest.approx(MARGIN * (0.0001 * rows + draft), rel=0.05)
    assert learned.of_round(part, far.params, B, B, 1) == learned.of_round(part, near.params, B, B, 1)
    for each in (near, far):
        settle(each, learned, 0.97, running=1)
    assert far._tokens(whole, learned, B) > 2 * near._tokens(whole, learned, B)
    assert far._tokens(part, learned, B) <= B


def test_limits_of_the_request_hold() -> None:
    learned = costs(0.003, 0.0001, 0.0003, 0.00001)
    made = settle(adaptive(gamma=2, draft_steps=1), learned, 0.9, running=1)
    assert all(choice.gamma <= 2 and choice.draft_steps <= 1 for choice in made)
    budgets = settle(adaptive(method="exact", row_budget=3 * B), learned, 0.9, running=1)
    assert {choice.row_budget for choice in budgets if choice.gamma} <= {2 * B, 3 * B}


@pytest.mark.parametrize("block_size", [4, 8])
def test_exact_keeps_its_text(block_size: int) -> None:
    prompts = [pairs.chat(question.prompt) for question in pairs.heldout(4)]
    params = [
        DecodeParams(method="exact", adaptive=True, max_tokens=20, temperature=i % 2, seed=i, lookahead=i % 3)
        for i in range(len(prompts))
    ]
    got = pairs.run(pairs.loop_of(block_size, batch=5), prompts, params)
    plain = [dataclasses.replace(p, method="vanilla", adaptive=False) for p in params]
    want = pairs.run(pairs.loop_of(block_size, batch=5), prompts, plain)
    assert [c.token_ids for c in got] == [c.token_ids for c in want]
    assert sum(c.stats.accepted for c in got) > 0


def test_simsd_decodes_with_it() -> None:
    prompts = [pairs.chat(question.prompt) for question in pairs.heldout(2)]
    params = [DecodeParams(method="simsd", adaptive=True, max_tokens=24)] * len(prompts)
    done = pairs.run(pairs.loop_of(B, batch=4), prompts, params)
    assert all(c.stats.completion_tokens or c.finish_reason == "stop" for c in done)
    forwards, tokens = (sum(getattr(c.stats, n) for c in done) for n in ("target_forwards", "completion_tokens"))
    assert forwards < tokens
