"""The prediction of speed: by hand, what bounds it, measured costs; and `simsd plan --speed` around it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simsd.cli.main import main
from simsd.errors import ConfigError
from simsd.planning.chain import Depths, Dynamic, LeftToRight, Static, count
from simsd.planning.costs import Curve, Fitted, Gpu, Roofline
from simsd.planning.shapes import config_of
from simsd.planning.speed import Answer, Machine, Setting, fastest, methods, predict, survey
from tests.unit.planning.test_capacity import MODEL, command

COST = Fitted(forward_s=0.01, row_s=0.001)
SURE = LeftToRight(1.0)
SIXTEEN = Answer(prompt_tokens=8, tokens=16)


def test_in_turns_by_hand() -> None:
    """Two rounds of two blocks, B = 4. Target: 2 x (8 + 8 + 4) rows and the commit before the second round. Draft: two
    forwards a round, with 4 x 4 rows for the blocks, 2 x 4 for assumed ones, and the commit."""
    found = predict(Machine(COST, COST, 0.002), Setting(SURE, 4, depth=1), [SIXTEEN])
    assert (found.rounds, found.target_rows, found.drafted_blocks) == (2, 44, 4)
    target_s, draft_s = 2 * 0.01 + 0.044, 4 * 0.01 + 0.028
    assert found.seconds == pytest.approx(target_s + draft_s + 2 * 0.002)
    assert found.parts == pytest.approx({"overhead": 0.004, "the draft": draft_s, "rows": target_s})
    assert found.bound == "the draft"
    assert found.tokens_per_s == pytest.approx(16 / found.seconds)
    assert found.tokens_per_verification == 8
    steps = predict(Machine(COST, COST, 0.002), Setting(SURE, 4, depth=1, draft_steps=3), [SIXTEEN])
    assert steps.parts["the draft"] == pytest.approx(12 * 0.01 + 0.028 + 0.032)


def test_beside_by_hand() -> None:
    """A slow draft, 18 ms for 8 rows, makes one block in a verification; a fast one, 5 ms, makes two and more."""
    slow = predict(Machine(COST, COST, 0), Setting(SURE, 4, depth=1, way="beside"), [SIXTEEN])
    assert (slow.rounds, slow.target_rows) == (4, 4 * 8 + 3 * 4)
    assert slow.seconds == pytest.approx(4 * 0.01 + 0.044 + 0.018)  # It waits before the first round only.
    fast = predict(Machine(COST, Fitted(0.001, 0.0005), 0), Setting(SURE, 4, depth=1, way="beside"), [SIXTEEN])
    # One block, two, and the last one: the first round had the open block only.
    assert (fast.rounds, fast.target_rows) == (3, 4 * 8 + 4 + 2 * 4)
    assert fast.seconds == pytest.approx(3 * 0.01 + 0.044 + 0.005)
    slower = Machine(COST, Fitted(0.05, 0), 0)
    waiting = predict(slower, Setting(SURE, 4, depth=1, way="beside"), [SIXTEEN])
    assert waiting.seconds == pytest.approx(4 * 0.05 + 0.021)  # Only the last of the target's 21 ms is not hidden.
    assert waiting.bound == "the draft"


def test_a_draft_that_is_wrong_makes_the_target_wait() -> None:
    never = Setting(LeftToRight(0.0), 4, depth=2, way="beside")
    found = predict(Machine(COST, COST, 0), never, [SIXTEEN])
    assert found.rounds == 16
    assert found.parts["the draft"] == pytest.approx(16 * 0.018)


def test_one_wrong_draft_holds_up_the_batch() -> None:
    """With two sequences a round waits for a draft forward of 20 ms unless both chains stood."""
    counts = count(LeftToRight(0.8), 4, 0, 16, Depths(0, (0,)))
    stood = 1 - counts.anew / counts.rounds
    assert 0.1 < stood < 0.5
    for running in (1, 2):
        setting = Setting(LeftToRight(0.8), 4, way="beside")
        found = predict(Machine(COST, Fitted(0.02, 0), 0), setting, [SIXTEEN] * running)
        verify_s = 0.01 + 0.001 * running * counts.target_rows(4) / counts.rounds
        wait_s = (1 - stood**running) * 0.02 + stood**running * max(0.0, 0.02 - verify_s)
        assert found.parts["the draft"] == pytest.approx(counts.rounds * wait_s)


def test_a_batch_shrinks_as_its_answers_end() -> None:
    """Answers of 4 and 8 positions, one a round: four rounds of two sequences, and four of one."""
    machine, setting = Machine(COST, None, 0.002, 0.001), Setting(Static(), 4)
    found = predict(machine, setting, [Answer(4, 4), Answer(4, 8)])
    rows = (12 * 4 + 4) / 12  # a sequence's rows in a mean round, with one commit
    two, one = 0.004 + 0.01 + 2 * rows * 0.001, 0.003 + 0.01 + rows * 0.001
    assert found.seconds == pytest.approx(4 * two + 4 * one)
    assert found.tokens_per_s == pytest.approx(12 / found.seconds)
    alike = predict(machine, setting, [Answer(4, 8)] * 2)
    assert alike.rounds == 16
    ended = predict(machine, setting, [Answer(4, 7, ends=1)])
    assert (ended.tokens, ended.rounds) == (7, 8)


def test_what_bounds_it() -> None:
    """The same round with a slow memory, a slow processor, and slow launches."""

    def bound(bandwidth: float, flops: float, launch_s: float, overhead_s: float = 0.0) -> str:
        cost = Roofline(MODEL, Gpu(bandwidth, flops, 1e9), launch_s=launch_s)
        return predict(Machine(cost, None, overhead_s), Setting(Dynamic(0.5), 4), [SIXTEEN]).bound

    assert bound(1e6, 1e12, 0) == "reading"
    assert bound(1e12, 1e6, 0) == "multiplying"
    assert bound(1e12, 1e12, 1.0) == "launching"
    assert bound(1e12, 1e12, 1.0, overhead_s=3.0) == "overhead"


def test_a_curve_through_measured_forwards() -> None:
    calls = [(1, 10, 0.02), (2, 20, 0.042), (1, 11, 0.9), (1, 40, 0.05), (1, 100, 0.08)]
    curve = Curve.of(calls)  # 10, 10 and 11 rows are one point, whose median is no outlier's
    assert curve.rows == (pytest.approx(31 / 3), 40, 100)
    assert curve.times == (0.021, 0.05, 0.08)
    assert curve.seconds(4, 0, 0, 0) == 0.021
    assert curve.seconds(70, 0, 0, 0) == pytest.approx(0.065)
    assert curve.seconds(130, 0, 0, 0) == pytest.approx(0.08 + 30 * (0.08 - 0.021) / (100 - 31 / 3))
    assert curve.parts(70, 0, 0, 0) == pytest.approx({"a forward's fixed cost": 0.021, "rows": 0.044})
    assert Curve((1, 2), (0.2, 0.1)).seconds(9, 0, 0, 0) == 0.1
    with pytest.raises(ConfigError, match="two numbers of rows"):
        Curve.of([(1, 10, 0.2), (1, 10, 0.2)])


def test_a_survey_has_every_setting_once() -> None:
    named = methods(acceptance=0.95, share=0.9)
    lines = survey(Machine(COST, COST), named, 4, 1, SIXTEEN, (0, 2), (1, 4), ("in turns", "beside"))
    keys = [(line.name, line.batch, line.setting.depth, line.setting.way) for line in lines]
    assert len(keys) == len(set(keys)) == 2 * (2 + 2 * 2 * 2)
    best = fastest(lines)
    assert best.prediction.tokens_per_s == max(line.prediction.tokens_per_s for line in lines)
    tied = [replace(best, name="first"), replace(best, name="second")]
    assert fastest(tied).name == "first"


def test_the_study_of_lookahead_on_a_gpu() -> None:
    """Where a verification costs what a step costs, and a draft forward a fifth: 1.5 times dynamic or so in turns, and
    more beside each other, for short answers: what a study of lookahead expects of 8B and 1.7B by bytes read."""
    machine = Machine(Fitted(1.0, 0), Fitted(0.2, 0), 0)
    named = methods(acceptance=0.97, share=0.98)
    answers = [Answer(first, 12, 1) for first in range(4)]

    def seconds(name: str, **how: Any) -> float:
        return sum(predict(machine, Setting(named[name], 4, **how), [answer]).seconds for answer in answers)

    dynamic = seconds("vanilla dynamic")
    turns, beside = (seconds("exact over dynamic", depth=2, way=way) for way in ("in turns", "beside"))
    assert 1.3 < dynamic / turns < 1.7
    assert dynamic / turns < dynamic / beside < 2.2


@pytest.mark.parametrize(
    "call",
    [
        lambda: Setting(Static(), 4, depth=1),
        lambda: Setting(SURE, 4, depth=9),
        lambda: Setting(SURE, 4, draft_steps=5),
        lambda: Machine(COST, None, -1.0),
        lambda: predict(Machine(COST), Setting(SURE, 4), [SIXTEEN]),
    ],
)
def test_what_cannot_be_is_refused(call: Any) -> None:
    with pytest.raises(ConfigError):
        call()


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--speed", "--launch-us", "0", "--batches", "1,8,5000", "--lookahead", "0,3")
    code, out, err = command(capsys, *options, "--json")
    found = json.loads(out)
    assert code == 0
    assert err == ""
    assert found["left_out"] == [5000]
    assert {line["batch"] for line in found["lines"]} == {1, 8}
    assert len(found["lines"]) == 2 * (2 + 2 * 2 * 2)
    for batch, best in zip((1, 8), found["best"], strict=True):
        of_batch = [line for line in found["lines"] if line["batch"] == batch]
        assert best == max(of_batch, key=lambda line: line["tokens_per_s"])
        assert sum(best["parts"].values()) == pytest.approx(1)
        assert best["tokens_per_verification"] * batch / best["round_s"] == pytest.approx(best["tokens_per_s"])
    static = next(line for line in found["lines"] if line["method"] == "vanilla static")
    cost = Roofline(config_of("sdar-8b"), Gpu(3.35e12, 989e12, 80e9), launch_s=0)
    assert static["tokens_per_s"] == pytest.approx(1 / (0.002 + cost.seconds(5, 4, 1, 640)), rel=1e-3)
    code, out, err = command(capsys, *options)
    assert code == 0
    assert f"best at batch 8: {found['best'][1]['method']}" in out
    assert f"{found['best'][0]['tokens_per_s']:.0f}" in out
    assert "prediction" in out.lower() or "predicted" in out.lower()
    assert "5000 is left out" in err
    _, out, _ = command(capsys, "--speed", "--shared", "--json", "--lookahead", "1")
    assert {line["way"] for line in json.loads(out)["lines"]} == {None, "in turns"}
    _, out, _ = command(capsys, "--speed", "--draft", "none", "--json")
    assert {line["method"] for line in json.loads(out)["lines"]} == {"vanilla static", "vanilla dynamic"}
    _, out, _ = command(capsys, "--speed", "--tokens-a-step", "2.5", "--json", "--lookahead", "0")
    assert json.loads(out)["tokens_a_step"] == pytest.approx(2.5)
    dynamic = next(line for line in json.loads(out)["lines"] if line["method"] == "vanilla dynamic")
    assert dynamic["tokens_per_verification"] == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--lookahead", "9"), "depth"),
        (("--lookahead", "x"), "--lookahead"),
        (("--batches", "0"), "--batches"),
        (("--batches", "100000"), "does not fit"),
        (("--gamma", "2"), "gamma"),
        (("--tokens-a-step", "5"), "tokens_a_step"),
        (("--foreseen", "2"), "foreseen"),
        (("--draft-share", "-1"), "draft_share"),
        (("--states", "0"), "states"),
        (("--acceptance", "2"), "acceptance"),
        (("--check", "--prompts", "0"), "prompts"),
    ],
)
def test_command_refuses(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], named: str) -> None:
    code, out, err = command(capsys, "--speed", *options)
    assert code == 2
    assert out == ""
    assert named in err
    assert "\n" not in err.strip()


def test_the_guides_example_is_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[3] / "docs" / "capacity.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(--gpu .*?)` \| (\S+) \| (\S+) \| (.+?) \| (\S+) \| (\S+) \|$", text, flags=re.MULTILINE)
    assert len(rows) == 7
    for options, dynamic, speed, setting, tokens, bound in rows:
        assert main(["plan", "--speed", *options.split(), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        (best,) = found["best"]
        [plain] = [line for line in found["lines"] if line["method"] == "vanilla dynamic"]
        told = best["method"] + (f", lookahead {best['lookahead']}, {best['way']}" if best["way"] else "")
        assert (dynamic, speed, setting, tokens, bound) == (
            f"{plain['tokens_per_s']:.0f}",
            f"{best['tokens_per_s']:.0f}",
            told,
            f"{best['tokens_per_verification']:.2f}",
            best["bound"].removeprefix("the "),
        )
