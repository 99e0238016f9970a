"""`simsd bench speed`: the plain loop, windows, products and ratios, on tiny pairs; the document and its verdicts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from simsd.cli import main as cli
from simsd.errors import InternalError
from simsd.in_process import generate_all
from simsd.messages.request import DecodeParams, Request
from simsd_bench.measure import floor, speed
from simsd_bench.measure.floor import Products, layers
from simsd_bench.measure.methods import Protocol, methods
from simsd_bench.measure.pair import PairSpec
from simsd_bench.measure.prompts import family_items
from simsd_bench.measure.ratios import ratio, spread
from simsd_bench.measure.rounds import QUICK, Forward, Window, decode_together, prompts_of, workers
from simsd_bench.measure.transformers_loop import PlainLoop, qwen3
from simsd_bench.report.results import finish, save
from simsd_bench.report.speed_tables import asked, document, marked

TINY = PairSpec(device="cpu", random_weights=("tiny", "tiny"))
SIZES = replace(QUICK, tokens=8, contexts=(32, 64))
B = 4


def quiet(_: str) -> Any:
    return lambda: None


@pytest.fixture(scope="module")
def items() -> list[Any]:
    return [replace(item, grade=None) for item in family_items(("math", "code", "trivia", "choice"), 1)]


@pytest.mark.parametrize("block_size", [4, 8])
def test_the_plain_loop_writes_what_vanilla_writes(items: list[Any], block_size: int) -> None:
    loop = TINY.loop(block_size)
    info = loop.target.info
    plain = PlainLoop(qwen3(workers(loop)[0].model), block_size, info.mask_token_id, 128)
    for prompt in [*prompts_of(loop, items, 2), [7], list(range(4, 4 + block_size))]:
        new = 20 + -(len(prompt) + 20) % block_size
        tokens, seconds = plain.decode(prompt, new)
        (ours,) = generate_all(loop, [Request("x", prompt, DecodeParams("vanilla", max_tokens=new, ignore_eos=True))])
        assert tokens == ours.token_ids
        assert seconds > 0


def test_a_baseline_of_other_tokens_is_refused(items: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlainLoop, "decode", lambda *_: ([1] * 8, 1.0))
    with pytest.raises(InternalError, match="vanilla and the plain loop differ"):
        speed.baseline(TINY, items, B, SIZES, quiet)


def test_the_plain_loop_counts_its_forwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """B steps a block and a commit between blocks; the prompt's tail leaves fewer positions open in the first."""
    loop = TINY.loop(B)
    plain = PlainLoop(qwen3(workers(loop)[0].model), B, loop.target.info.mask_token_id, 64)
    spans: list[tuple[int, int]] = []
    forward = PlainLoop.forward

    def noting(self: PlainLoop, ids: torch.Tensor, first: int, last: int, cache: Any) -> torch.Tensor:
        spans.append((first, last))
        return forward(self, ids, first, last, cache)

    monkeypatch.setattr(PlainLoop, "forward", noting)
    plain.decode(list(range(4, 13)), 7)
    assert spans == [(0, 8), *[(8, 12)] * 3, (8, 12), *[(12, 16)] * 4]


def test_a_window_has_the_rounds_in_which_all_decode() -> None:
    """Prompts of 10 blocks and of one token: prefill is no part of it, nor what comes after the first is done."""
    loop = TINY.loop(B, batch=2)
    vanilla = methods(B, Protocol(8, random_weights=True))["vanilla-static"]
    window = decode_together(loop, [list(range(4, 44)), list(range(4, 48))], vanilla)
    assert (window.rounds, window.revealed, window.target_forwards) == (8, 16, 8)
    # Both have an empty block open; in its first round nothing is owed, in the fifth the first block is.
    rows = [(forward.rows, forward.wanted) for forward in window.forwards]
    assert rows == [(8, 8), (8, 6), (8, 4), (8, 2), (16, 8), (8, 6), (8, 4), (8, 2)]
    assert 0 < window.target_s < window.seconds
    assert (window.acceptance, window.draft_forwards) == (None, 0)
    drafted = decode_together(loop, [list(range(4, 44))], methods(B, Protocol(8, random_weights=True))["simsd"])
    assert drafted.draft_forwards == drafted.rounds
    assert {forward.worker.info.role for forward in drafted.forwards} == {"draft", "target"}
    assert drafted.acceptance == drafted.accepted / (drafted.accepted + drafted.recovered)
    assert loop.on_round is None
    assert all(type(worker.runner).__name__ == "EagerRunner" for worker in workers(loop))
    (again,) = generate_all(loop, [Request("again", [5], replace(vanilla, max_tokens=4))])
    assert len(again.token_ids) == 4
    assert all(worker.page_use().held == 0 for worker in workers(loop))


def test_windows_add_up() -> None:
    total = Window.sum([Window(1.0, 2, 6, accepted=3), Window(0.5, 1, 3, accepted=1, recovered=2)])
    assert (total.seconds, total.rounds, total.revealed, total.tokens_per_s) == (1.5, 3, 9, 6.0)
    assert total.acceptance == 4 / 6


def test_the_floor_is_every_product_of_a_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers of four matrices, and the head on the wanted rows only; none where no logits are wanted."""
    worker = workers(TINY.loop(B))[0]
    config = worker.model.config
    assert sum(w.numel() for w in layers(worker.model)) == config.parameters - 2 * config.vocab_size * 32 - sum(
        p.numel() for p in worker.model.parameters() if p.ndim == 1
    )
    shapes: list[tuple[int, ...]] = []
    monkeypatch.setattr(floor.F, "linear", lambda x, w: shapes.append((*x.shape, *w.shape)))
    products, forwards = Products(), [Forward(worker, 12, 4), Forward(worker, 40, 0)]
    products.seconds(forwards)
    shapes.clear()  # the first time warms up
    assert products.seconds(forwards) > 0
    layer = [(32, 64, 32), (32, 32, 32), (32, 96, 32), (48, 32, 48)]
    expected = [[(rows, wide, out, into) for wide, out, into in layer * 2] for rows in (12, 40)]
    assert shapes == [*expected[0], (4, 32, 1024, 32), *expected[1]]


def test_ratios_by_hand() -> None:
    assert spread("x", [1, 2, 3, 4, 10]) == {"x": 3, "x_low": 2, "x_high": 4}
    assert spread("x", [5]) == {"x": 5, "x_low": 5, "x_high": 5}
    assert ratio("r", [2, 6, 12], [1, 2, 3]) == {"r": 3, "r_low": 2.5, "r_high": 3.5}


@pytest.fixture(scope="module")
def report(items: list[Any]) -> dict[str, Any]:
    names = ["baseline", "floor", "concurrency", "context"]
    found = speed.run(TINY, items, [B], names, SIZES, False, quiet)
    return finish(found, TINY, "simsd bench speed", "4 of math")


def test_every_measurement_has_its_lines(report: dict[str, Any]) -> None:
    sections = report["sections"]
    (baseline,) = sections["baseline"]
    assert (baseline["block_size"], baseline["prompts"]) == (B, 4)
    lines = [(row["runner"], row["batch"], row["method"]) for row in sections["floor"]]
    assert lines == [(r, b, m) for r in ("eager", "graph") for b in SIZES.batches for m in ("vanilla-static", "simsd")]
    assert all(row["floor_ms"] > 0 and row["round_ms"] > 0 for row in sections["floor"])
    together = sections["concurrency"]
    assert {row["concurrency"] for row in together} == set(SIZES.concurrencies)
    assert all(row["over_one"] == 1 for row in together if row["concurrency"] == 1)
    assert all(row["over_vanilla"] == 1 for row in together if row["method"] == "vanilla-static")
    assert [(row["context"], row["method"]) for row in sections["context"]] == [
        (length, method) for length in (32, 64) for method in ("vanilla-static", "simsd")
    ]
    for row in sections["context"]:
        assert ("draft_ms" in row) == (row["method"] == "simsd")
        assert row["target_ms"] < row["round_ms"]


def test_the_document_and_the_plots(report: dict[str, Any], tmp_path: Path) -> None:
    written = {path.name for path in save(report, tmp_path)}
    plots = {f"speed-{name}.{kind}" for name in ("floor", "concurrency", "context") for kind in ("png", "svg")}
    assert written == {"speed.json", "speed.md"} | plots
    text = (tmp_path / "speed.md").read_text()
    for part in ("figures are of systems", "plain transformers loop, B = 4", "## Cost against context", "1 repeats"):
        assert part in text
    assert json.loads((tmp_path / "speed.json").read_text())["kind"] == "speed"


def line(at: int, method: str, over_one: float, over_vanilla: float) -> dict[str, Any]:
    return (
        {"concurrency": at, "method": method} | spread("over_one", [over_one]) | spread("over_vanilla", [over_vanilla])
    )


def test_what_was_asked_is_judged(report: dict[str, Any]) -> None:
    sections = {
        "baseline": [{"block_size": 8, "runner": "eager"} | spread("ratio", [2.01])],
        "floor": [
            {"runner": runner, "batch": batch, "method": "simsd"} | spread("ratio", [1.5])
            for runner in ("eager", "compile")
            for batch in (1, 16)
        ],
        "engines": [
            {"line": way, "batch": at, "method": "simsd"} | spread("ratio", [0.87])
            for way in ("engines", "engines, a round at a time")
            for at in (1, 16)
        ],
        "concurrency": [
            line(16, "vanilla-static", 4.4, 1),
            line(16, "simsd", 2.9, 1.2),
            line(8, "simsd-adaptive", 2, 0.97),
            line(16, "simsd-adaptive", 3, 1.2),
        ],
    }
    table = document(report | {"sections": sections}).split("## What was asked\n\n")[1].split("\n\n")[0]
    met = [cells.rsplit("|", 2)[1].strip() for cells in table.splitlines()[2:]]
    found = dict(zip([row["asked"] for row in asked(sections)], met, strict=True))
    assert found == {
        "vanilla over a plain transformers loop, B = 8, eager": "yes",
        "simsd over its floor, batch 1, compiled": "yes",
        "simsd over its floor, batch 16, compiled": "no",
        "simsd with engines on Ray, of its speed in process, 1 at a time": "yes",
        "simsd with engines on Ray, of its speed in process, 16 at a time": "no",
        "vanilla-static, 16 sequences over one": "no",
        "simsd, 16 sequences over one": "yes",
        "adaptive simsd over vanilla at any concurrency; least at 8": "no",
    }


def test_the_best_fixed_setting_is_marked_in_each_block_size() -> None:
    rows = [
        {"block_size": b, "method": m, "fixed": m != "adaptive"} | spread("ratio", [r])
        for b, m, r in ((4, "adaptive", 1.0), (4, "a", 0.9), (4, "b", 1.1), (8, "a", 0.8), (8, "b", 0.7))
    ]
    assert [row["best"] for row in marked(rows)] == [False, False, True, True, False]


def test_the_command_refuses_what_it_does_not_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "speed", "light"]) == 2
    assert "speed: unknown 'light'; known: baseline, floor" in capsys.readouterr().err
