"""What the benchmarks count, on tiny pairs without weights, and that every output says what it is of."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from simsd.cli import main as cli
from simsd.errors import ConfigError, RequestError
from simsd.in_process import Completion, LocalClient
from simsd.loop.loop import Loop
from simsd.messages.request import DecodeParams, Stats
from simsd.models.loading import build_model
from simsd_bench.measure import ablate, accuracy, sweep
from simsd_bench.measure.decode import Result, Sample, Setting, measure, untimed_s
from simsd_bench.measure.methods import METHODS, Protocol, methods
from simsd_bench.measure.pair import PairSpec
from simsd_bench.measure.prompts import family_items, file_items
from simsd_bench.report.paper import document as paper_document
from simsd_bench.report.results import document, finish, save
from simsd_bench.report.trends import trends

TINY = PairSpec(device="cpu", random_weights=("tiny", "tiny"))
SHORT = Protocol(12, warm_up=1, random_weights=True)
B = 4


@pytest.fixture(scope="module")
def items() -> list[Any]:
    return [replace(item, grade=None) for item in family_items(("math", "code", "trivia", "choice"), 1)]


def completion(tokens: int, **stats: Any) -> Completion:
    return Completion([1] * tokens, "", "length", Stats(completion_tokens=tokens, **stats))


def sample(tokens: int, decode_s: float, right: bool | None = None, **stats: Any) -> Sample:
    return Sample(["math"], [completion(tokens, **stats)], [[] if right is None else [right]], decode_s, rows=40)


def setting(name: str = "x") -> Setting:
    loop: Any = None
    return Setting(name, DecodeParams(), loop)


def test_the_columns_by_hand() -> None:
    """Speeds 10, 20, 40 over 5, 10, 5: medians 20 and 5; ratios 2, 2, 8."""
    facts = {"target_forwards": 4, "draft_forwards": 2, "accepted": 3, "recovered": 1, "bonus": 2}
    samples = [
        sample(10, s, right, accept_histogram={3: 1, 0: 1}, **facts)
        for s, right in ((1, True), (0.5, False), (0.25, True))
    ]
    result = Result(setting(), samples, [sample(10, s) for s in (2, 1, 2)])
    row = result.row(block_size=4)
    assert row["ratio"] == 4
    assert (row["ratio_low"], row["ratio_high"]) == (2, 5)
    assert row["tokens_per_s"] == pytest.approx(30 / 1.75)
    assert row["block_ms"] == pytest.approx(1000 * 4 * 1.75 / 30)
    assert row["acceptance"] == 9 / 12
    assert row["tokens_per_verify"] == 18 / 6
    assert row["target_forwards_per_token"] == 12 / 30
    assert row["draft_forwards_per_token"] == 6 / 30
    assert row["rows_per_target_forward"] == 120 / 12
    assert (row["accuracy"], row["prompts"]) == (2 / 3, 3)
    assert result.of("math").row(4) == row


def test_empty_answers_have_no_speed() -> None:
    result = Result(setting(), [sample(0, 0.1), sample(8, 2)], [sample(4, 1), sample(4, 2)])
    assert result.ratio == 2
    assert result.ratio_spread == (2, 2)
    assert result.accuracy is None
    assert result.acceptance is None


@pytest.mark.parametrize("block_size", [4, 8])
def test_every_method_decodes_and_keeps_its_promise(items: list[Any], block_size: int) -> None:
    loop = TINY.loop(block_size)
    named = methods(block_size, SHORT)
    assert tuple(named) == METHODS
    results = measure(items[:2], [Setting(name, params, loop) for name, params in named.items()], warm_up=1)
    texts = {r.setting.name: [c.token_ids for s in r.samples for c in s.completions] for r in results}
    assert all(len(tokens) == 12 for answers in texts.values() for tokens in answers)
    assert texts["exact"] == texts["exact-self"] == texts["vanilla-static"]
    assert texts["exact-sequential"] == texts["vanilla-sequential"]
    for result in results:
        assert len(result.samples) == len(result.baseline) == 2
        assert result.baseline == results[0].samples
        row = result.row(block_size)
        assert row["prompts"] == 2
        assert (row["draft_forwards_per_token"] > 0) == result.setting.params.needs_draft
        if result.setting.params.routing == "span":  # other policies may never verify
            assert (row["tokens_per_verify"] is None) == result.setting.name.startswith("vanilla")
    assert results[0].row(block_size)["ratio"] == 1


def test_prompts_decoded_together(items: list[Any]) -> None:
    loop = TINY.loop(B, batch=2)
    (result,) = measure(items[:3], [Setting("simsd", methods(B, SHORT)["simsd"], loop)], batch=2, warm_up=0)
    assert [len(s.completions) for s in result.samples] == [2, 1]
    for each in result.samples:
        assert each.decode_s >= max(c.stats.decode_s for c in each.completions) > 0


def synthetic(items: list[Any], acceptance: float, method: str, max_tokens: int = 24) -> Result:
    loop = replace(TINY, acceptance=acceptance).loop(B)
    named = methods(B, replace(SHORT, max_tokens=max_tokens))
    chosen = [Setting(name, named[name], loop) for name in ("vanilla-static", method)]
    vanilla, result = measure(items, chosen, warm_up=0)
    if method == "simsd-branches" and acceptance == 1:  # the target's own path, so the target's own text
        assert [s.completions[0].token_ids for s in vanilla.samples] == [
            s.completions[0].token_ids for s in result.samples
        ]
    assert untimed_s(loop) > 0
    for each in result.samples:
        assert 0 < each.decode_s < each.completions[0].stats.decode_s
    assert all(s.decode_s == s.completions[0].stats.decode_s for s in vanilla.samples)
    return result


@pytest.mark.parametrize("method", ["simsd-branches", "exact"])
def test_synthetic_acceptance_at_its_ends(items: list[Any], method: str) -> None:
    assert synthetic(items, 1.0, method).acceptance == 1.0
    assert synthetic(items, 0.0, method).acceptance == 0.0


def test_synthetic_acceptance_between(items: list[Any]) -> None:
    """Judged tokens are independent draws: within four standard deviations."""
    result = synthetic(items, 0.7, "simsd-branches", max_tokens=96)
    judged = result.total("accepted") + result.total("recovered")
    assert judged > 200
    assert result.acceptance == pytest.approx(0.7, abs=4 * (0.7 * 0.3 / judged) ** 0.5)


def test_synthetic_acceptance_is_greedy(items: list[Any]) -> None:
    loop = replace(TINY, acceptance=0.5).loop(B)
    warm = Setting("simsd", DecodeParams(temperature=1.0, max_tokens=8), loop)
    with pytest.raises(BaseException, match="greedy"):
        measure(items[:1], [warm], warm_up=0)


def test_shapes_are_those_of_the_checkpoints() -> None:
    """Weights of the public models, counted without making them; the paper's names say how many billions."""
    from simsd.models.config import ModelConfig
    from simsd.planning.shapes import SHAPES

    for name, billions in (("sdar-1.7b", 1.7), ("sdar-4b", 4.0), ("sdar-8b", 8.2)):
        facts = {k: v for k, v in SHAPES[name].items() if k not in ("architectures", "eos_token_id")}
        config = ModelConfig(architecture="SDARForCausalLM", block_size=4, eos_token_ids=(2,), **facts)
        with torch.device("meta"):
            counted = sum(p.numel() for p in build_model(config).parameters())
        assert counted == config.parameters
        assert counted / 1e9 == pytest.approx(billions, rel=0.03)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"random_weights": ("tiny", "huge")}, "no shape 'huge'; known: sdar-1.7b"),
        ({"acceptance": 1.5}, "between 0 and 1; got 1.5"),
        ({"acceptance": float("nan")}, "between 0 and 1"),
    ],
)
def test_a_pair_that_cannot_be(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        PairSpec(**changes)


@pytest.mark.parametrize("block_size", [4, 8])
@pytest.mark.parametrize("name", ablate.ABLATIONS)
def test_ablations_change_what_they_say(name: str, block_size: int) -> None:
    loop: Any = None
    first, *lines = ablate.settings(name, loop, block_size, SHORT)
    assert first.name == "vanilla-static"
    base = methods(block_size, SHORT)
    assert lines
    for line in lines:
        line.params.resolve(block_size)
        changes = {k: v for k, v in line.facts.items() if k not in ("line", "order")}
        if "line" in line.facts:
            assert line.params == replace(base[line.facts["line"]], **changes)
    assert len({line.name for line in lines}) == len(lines)


def test_the_rope_ablation_has_both_position_ids(items: list[Any]) -> None:
    report = ablate.run(TINY, items[:1], [B], ["rope"], SHORT, lambda _: lambda: None)
    rows = report["sections"]["rope"]
    assert [row["method"] for row in rows] == ["vanilla-static", "aligned", "slots numbered onward"]
    assert rows[2]["kl"] > rows[1]["kl"] > -1e-6


def test_prompts_come_from_files(tmp_path: Path) -> None:
    sums = [{"question": f"{i}?", "answer": f"#### {i}"} for i in range(3)]
    plain = [{"prompt": "Hello"}, {"messages": [{"role": "user", "content": "Hi"}]}]
    for name, rows in (("sums", sums), ("plain", plain)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = file_items([tmp_path / "sums.jsonl", tmp_path / "plain.jsonl"], 2, shots=1)
    assert [item.key for item in found] == ["gsm8k/1", "gsm8k/2", "plain/0", "plain/1"]
    assert [item.grade is None for item in found] == [False, False, True, True]
    assert found[2].messages == [{"role": "user", "content": "Hello"}]
    (tmp_path / "odd.jsonl").write_text('{"text": 1}\n')
    with pytest.raises(RequestError, match="row 0: neither prompt nor messages"):
        file_items([tmp_path / "odd.jsonl"], 2)
    (tmp_path / "none.jsonl").write_text("\n")
    with pytest.raises(RequestError, match="no prompts in"):
        file_items([tmp_path / "none.jsonl"], 2)


def reports() -> dict[str, dict[str, Any]]:
    """One of each kind, made up but for its form."""
    row = Result(setting("vanilla-static"), [sample(8, 1.0, True, target_forwards=9)], [sample(8, 1.0)]).row
    lines = [row(b) | {"method": m, "batch": 1} for b in (4, 8) for m in METHODS]
    gamma = [row(8) | {"method": f"gamma {g}", "line": "simsd", "gamma": g, "tokens_per_verify": g} for g in (1, 2, 8)]
    rope = [row(4) | {"method": m, "line": "simsd", "kl": kl} for m, kl in (("aligned", 0.1), ("onward", 9.0))]
    parts = [
        {"block_size": b, "drafter": d, "part": part, "steps": 3, "top1": 0.9, "kl": 0.1, "total_variation": 0.05}
        for b in (4, 8)
        for d in ("self-draft", "draft/target")
        for part in ("all", *range(b), "draft wrong")
    ]
    served = [
        sweep.row("HTTP", m, c, [sweep.Answer(0.1, 0.5, 8)], 1.0)
        | {"in_process_tokens_per_s": 16.0, "in_process_cpu_ms": 1.0, "cpu_ms": {"client": 2.0, "engines": 3.5}}
        for c in (1, 8)
        for m in ("vanilla-static", "simsd")
    ]
    sources = [line | {"source": source} for line in lines for source in ("math", "code")]
    return {
        "decode": {"kind": "decode", "protocol": "p", "rows": lines, "by_source": sources},
        "ablate": {"kind": "ablate", "protocol": "p", "sections": {"rope": [row(4), *rope], "gamma": [row(8), *gamma]}},
        "approx": {"kind": "approx", "rows": parts},
        "serve": {"kind": "serve", "protocol": "p", "block_size": 4, "url": False, "rows": served},
    }


@pytest.mark.parametrize("spec", [PairSpec(), replace(TINY, acceptance=0.9)], ids=["weights", "synthetic"])
def test_every_report_says_what_it_is_of(tmp_path: Path, spec: PairSpec) -> None:
    for kind, report in reports().items():
        whole = finish(report, spec, f"simsd bench {kind}", "4 of math")
        text = document(whole)
        for part in (f"`simsd bench {kind}`", whole["machine"]["torch"], whole["machine"]["date"], "4 of math"):
            assert part in text
        assert f"commit {whole['machine']['commit']}" in text
        written = save(whole, tmp_path)
        assert {path.name for path in written} >= {f"{kind}.json", f"{kind}.md"}
        for path in written:
            assert 0 < path.stat().st_size < 100_000, path
        pictures = [path for path in written if path.suffix == ".svg"]
        assert pictures
        for path in pictures:
            drawn = " ".join(ElementTree.parse(path).getroot().itertext())
            assert f"commit {whole['machine']['commit']}" in drawn
            assert any(unit in drawn for unit in ("tokens/s", "total variation"))
            assert path.name in (tmp_path / f"{kind}.md").read_text()
            assert ("synthetic acceptance: systems only" in drawn) == spec.synthetic
        numbers = json.loads((tmp_path / f"{kind}.json").read_text())
        assert numbers["synthetic"] == spec.synthetic
        if spec.synthetic:
            assert "random weights" in text
            assert "synthetic acceptance 0.9" in text
            assert "figures are of systems" in text
            assert "random weights" in numbers["pair"]
    assert (tmp_path / "paper.md").read_text() == paper_document(
        *(finish(reports()[k], spec, "", "4 of math") for k in ("decode", "ablate", "approx"))
    )


def test_the_papers_figures_stand_beside_ours() -> None:
    whole = [finish(reports()[kind], PairSpec(), "x", "4 of math") for kind in ("decode", "ablate", "approx")]
    text = paper_document(*whole)
    for figure in ("71.6", "1.38", "81.8", "2.52", "7.120", "0.964", "72.6 (1.45)"):
        assert figure in text
    assert "| 8 | SimSD | 81.8 | 2.52 | 0.698 | 8.0 |" in text


def bench(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(["bench", *argv])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_the_command_measures_and_writes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    numbers, results = tmp_path / "d.json", tmp_path / "results"
    argv = "decode --n 1 --quick --max-tokens 8 --methods vanilla-static,simsd,exact --random-weights tiny,tiny".split()
    argv += ["--synthetic-acceptance", "0.9", "--json", str(numbers), "--results", str(results), "--device", "cpu"]
    code, out, err = bench(capsys, *argv)
    assert code == 0
    report = json.loads(numbers.read_text())
    assert [row["method"] for row in report["rows"]] == ["vanilla-static", "simsd", "exact"]
    assert all(row["tokens"] == 40 and row["accuracy"] is None for row in report["rows"])
    assert report["prompts"] == "1 of lists, 1 of math, 1 of code, 1 of trivia, 1 of choice"
    assert "**random weights**" in out
    assert (results / "decode.md").is_file()
    assert "B=4, batch 1: 3 methods over 5 prompts" in err


def test_accuracy_counts_the_parts_of_each_family_on_both_splits(tmp_path: Path) -> None:
    protocol = Protocol(8, random_weights=True)
    report = accuracy.run(TINY, ["math", "lists"], 2, [B], ["vanilla-static"], protocol, lambda _: lambda: None)
    lines = [(row["split"], row["method"]) for row in report["rows"]]
    assert lines == [(s, m) for s in ("heldout", "phrasing") for m in ("vanilla-static", accuracy.DRAFT_ALONE)]
    for row in report["rows"]:
        assert row["math"] == row["lists"] == row["all"] == 0
        assert row["math_high"] > row["lists_high"] > 0  # a list has at least three parts
    text = document(finish(report, TINY, "x", "2 of math, 2 of lists"))
    assert "| 4 | phrasing | vanilla-static | 0.000 | 0.000 (0.000-0.658) | 0.000 (0.000-" in text


def test_answers_of_trained_pairs_end_at_eos_and_only_random_weights_go_on() -> None:
    assert not Protocol().params().ignore_eos
    assert Protocol(random_weights=True).params().ignore_eos
    assert "random weights" in Protocol(random_weights=True).describe()
    assert not any(params.ignore_eos for params in methods(B, Protocol()).values())


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["decode", "--families", "songs"], "--families: unknown 'songs'; known: math, code"),
        (["decode", "--methods", "magic"], "--methods: unknown 'magic'; known: vanilla-static"),
        (["ablate", "weather"], "ablate: unknown 'weather'; known: rope, gamma"),
        (["serve", "--methods", "magic"], "--methods: unknown 'magic'"),
        (["serve", "--concurrency", "1,x"], "--concurrency takes positive numbers"),
        (["decode", "--batches", "0"], "--batches takes positive numbers"),
        (["decode", "--n", "0"], "--n must be at least 1"),
        (["decode", "--random-weights", "tiny"], "--random-weights takes DRAFT,TARGET"),
        (["decode", "--synthetic-acceptance", "2"], "between 0 and 1"),
        (["all"], "name a --results directory"),
    ],
)
def test_bad_arguments_are_one_line(capsys: pytest.CaptureFixture[str], argv: list[str], says: str) -> None:
    code, _, err = bench(capsys, *argv)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1


def test_what_does_the_loop_hold_is_local() -> None:
    loop = TINY.loop(B)
    assert isinstance(loop, Loop)
    assert isinstance(loop.target, LocalClient)
    assert loop.target.info.vocab_size == 1024


def trend_rows(**changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Trend -> row, of made-up reports; `changes` by method or section line."""
    found = reports()
    for row in [*found["decode"]["rows"], *(r for rows in found["ablate"]["sections"].values() for r in rows)]:
        row |= changes.get(row["method"].replace("-", "_").replace(" ", "_"), {})
    found["ablate"]["sections"]["gamma"].append(found["ablate"]["sections"]["gamma"][1] | {"gamma": 3})
    return {row["trend"]: row for row in trends(found["decode"], found["ablate"], found["approx"])}


def test_trends_are_judged() -> None:
    good = trend_rows(
        vanilla_static={"ratio": 1.0, "accuracy": 0.9, "accuracy_low": 0.8},
        s2d2_span={"ratio": 1.2},
        simsd_steps={"ratio": 1.5, "accuracy": 0.85, "accuracy_high": 0.88},
        aligned={"accuracy": 0.8, "acceptance": 0.9},
        onward={"accuracy": 0.0, "acceptance": 0.1},
        gamma_1={"acceptance": 0.7},
        gamma_8={"acceptance": 0.9},
    )
    assert good["slots numbered onward: accuracy collapses"]["ours"] == "0.800 to 0.000"
    assert good["gamma 3 to 8, B = 8: acceptance rises"]["paper"] == "0.834 to 0.964"
    assert good["gamma 3 to 8, B = 8: more tokens stand"]["ours"] == "1.00 to 8.00 a verify call"
    different = {trend: row["remark"] for trend, row in good.items() if row["same"] != "yes"}
    # In the paper S2D2 is slower than vanilla at B = 4; top-1 and KL are made up as .9, and alike for both B.
    assert different.pop("B = 4: vanilla, S2D2, SimSD by speed").startswith("S2D2 decodes with dynamic remasking")
    assert len(different) == 6
    assert all(trend.startswith("one pass") for trend in different)


def test_trends_that_differ_are_said_to() -> None:
    bad = trend_rows(
        simsd_steps={"ratio": 0.9, "accuracy": 0.2, "accuracy_high": 0.3},
        vanilla_static={"ratio": 1.0, "accuracy_low": 0.8},
        aligned={"acceptance": 0.5, "kl": 2.0},
        onward={"acceptance": 0.6, "accuracy": 0.9},
    )
    assert {row["same"] for trend, row in bad.items() if "gamma" not in trend} == {"**no**"}
