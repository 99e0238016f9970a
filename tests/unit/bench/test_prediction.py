"""What the check of `simsd plan --speed` learns and compares, on tiny random pairs and on rounds made by hand."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from simsd.cli import main as cli
from simsd.errors import ConfigError
from simsd.messages.options import options_of
from simsd.messages.request import DecodeParams
from simsd.messages.round import BlockVerdict, Verdict, Verdicts
from simsd.planning.speed import methods
from simsd_bench.measure import prediction
from simsd_bench.measure.pair import PairSpec
from simsd_bench.measure.prediction import Watch, at_depth, check, machine_of, markdown, settings_of
from simsd_bench.measure.prompts import family_items

ACCEPTANCE = 0.8
HALF_RIGHT = PairSpec(device="cpu", random_weights=("tiny", "tiny"), acceptance=ACCEPTANCE)
TOKENS = 16


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    notes: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "LEARNING_BATCHES", (1, 2))
        asked = [replace(item, check=None) for item in family_items(3)]
        found = check(HALF_RIGHT, asked, [4, 8], [1, 2], [0], TOKENS, notes.append)
    assert len(notes) == 2 + 4
    return found


def test_every_setting_is_predicted_and_measured(report: dict[str, Any]) -> None:
    keys = [(row["block_size"], row["batch"], row["method"], row["lookahead"]) for row in report["rows"]]
    names = ["vanilla dynamic", "simsd left to right", "exact over dynamic"]
    assert keys == [(size, batch, name, 0) for size in (4, 8) for batch in (1, 2) for name in names]
    assert report["prompts"] == {"learning": 4, "compared": 8}
    for row in report["rows"]:
        assert row["ratio"] == pytest.approx(row["measured_tokens_per_s"] / row["predicted_tokens_per_s"])
        assert row["predicted_tokens_per_s"] > 0
    assert report["within"] == sum(1 / 1.2 <= row["ratio"] <= 1.2 for row in report["rows"])
    table = markdown(report)
    assert table.count("\n| ") == 1 + 12
    assert f"{report['within']} of 12 settings are within 20 %" in table


def test_the_chances_are_those_of_the_pair(report: dict[str, Any]) -> None:
    """The draft is right with .8 by its making, and random weights are sure of nothing."""
    for chances in report["chances"].values():
        assert chances["simsd_acceptance"] == pytest.approx(ACCEPTANCE, abs=0.08)
        assert chances["share"] < 0.05


def test_the_counts_are_predicted(report: dict[str, Any]) -> None:
    """The verifications a token and their rows are free of noise from the clock; acceptance was drawn."""
    for row in report["rows"]:
        measured, predicted = row["measured_verifications_per_token"], row["predicted_verifications_per_token"]
        if row["method"] == "vanilla dynamic":
            # One position a step, of which a few lie behind the end in the last block.
            assert predicted == pytest.approx(1, abs=0.01)
            assert predicted <= measured < predicted + row["block_size"] / TOKENS
        if row["method"] == "simsd left to right":
            assert measured == pytest.approx(predicted, rel=0.15)
            assert row["measured_rows_per_verification"] == pytest.approx(
                row["predicted_rows_per_verification"], rel=0.1
            )


def verdicts(reveals: int, *, drafted: int = 0, kinds: str = "", steps: int = 1, ids: str = "ab") -> Verdicts:
    """A round of sequences that each reveal as many tokens; kinds: a letter for each (a: accepted, r: recovered)."""
    told: Any = [{"a": "accepted", "r": "recovered", "d": "denoised"}[kind] for kind in kinds or "d" * reveals]
    blocks = [BlockVerdict([(i, 9) for i in range(reveals)], told, steps=steps, drafted=drafted)] if reveals else []
    return Verdicts({name: Verdict(0, blocks) for name in ids}, 1, 8 * len(ids), 0.01, 2, 6 * len(ids), 0.006)


def test_a_watch_sees_rounds_in_which_all_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 1.5, 1.6, 1.7, 1.9, 2.9])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    watch = Watch()
    watch.see(0, verdicts(0))  # a prompt
    watch.see(0, verdicts(1))  # the first round of these sequences
    watch.see(0, verdicts(1))
    watch.see(0, verdicts(2, drafted=4, kinds="aa", steps=2))
    watch.see(0, verdicts(1, ids="a"))  # another batch
    watch.see(0, verdicts(4, drafted=4, kinds="aaar", steps=3, ids="a"))
    assert watch.target == [(1, 16, 0.01), (1, 16, 0.01), (1, 8, 0.01)]
    assert watch.draft == [(2, 12, 0.006), (2, 12, 0.006), (2, 6, 0.006)]
    assert watch.rest == {2: [pytest.approx(0.1 - 0.016)] * 2, 1: [pytest.approx(1 - 0.016)]}
    # Two sequences: one step more than one each, and a state that was missed. One: two steps more; a token was wrong.
    assert (watch.walked, watch.missed) == (2 + 2, 2)


def test_the_machine_is_made_of_medians() -> None:
    watch = Watch(target=[(1, 8, 0.01), (1, 16, 0.02)], draft=[(2, 16, 0.01), (1, 16, 0.01)])
    watch.rest |= {1: [0.001, 0.002, 9.0], 3: [0.006]}
    machine = machine_of(watch)
    assert machine.target.seconds(12, 0, 1, 0) == pytest.approx(0.015)
    assert machine.draft is not None
    assert machine.draft.seconds(8, 0, 1, 0) == 0.005
    assert (machine.overhead_s, machine.sequence_s) == (pytest.approx(0), pytest.approx(0.002))


def test_depth_is_the_lookahead_of_a_request() -> None:
    params = settings_of(TOKENS)
    assert list(params) == list(methods(0.9, 0.9))
    assert all(at_depth(each, 0).max_tokens == TOKENS for each in params.values())
    drafting = params["simsd left to right"]
    if "lookahead" in options_of(DecodeParams):
        assert at_depth(drafting, 2).lookahead == 2
    else:
        with pytest.raises(ConfigError, match="depth must be 0"):
            at_depth(drafting, 2)


def test_too_few_prompts_are_refused() -> None:
    with pytest.raises(ConfigError, match="prompts must be more than 2"):
        check(HALF_RIGHT, family_items(1)[:2], [4], [1], [0], TOKENS, print)
    with pytest.raises(ConfigError, match="must fill 8 at a time"):
        check(HALF_RIGHT, family_items(1), [4], [8], [0], TOKENS, print)


def test_command(report: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The options reach the check; what it returns is shown as a table, or as numbers."""
    asked: list[Any] = []

    def recorded(spec: PairSpec, items: Any, *rest: Any) -> dict[str, Any]:
        asked.append((spec.overlap, len(items), *rest[:4]))
        return report

    monkeypatch.setattr(prediction, "check", recorded)
    assert cli.main(["plan", "--speed", "--check", "--prompts", "9", "--answer-tokens", "64"]) == 0
    assert capsys.readouterr().out == markdown(report) + "\n"
    told = ["--overlap", "--lookahead", "0,2", "--batches", "1,16", "--block-size", "8", "--json"]
    assert cli.main(["plan", "--speed", "--check", *told]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == report["rows"]
    assert asked == [(False, 9, [4, 8], [1, 4], [0], 64), (True, 60, [8], [1, 16], [0, 2], 256)]
