"""How `simsd bench approx` compares one pass with sequential steps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simsd.worker.worker import Worker
from simsd_bench.measure.approx import Step, compare, drafted_path, steps_of, summary, wrong_steps
from simsd_bench.measure.pair import PairSpec
from simsd_bench.measure.prompts import family_items
from tests import oracle
from tests.unit.checkpoints import Shape, write_checkpoint
from tests.unit.toy_tokenizer import MASK_ID

TINY = PairSpec(device="cpu", random_weights=("tiny", "tiny"))
B = 4


@pytest.fixture(scope="module")
def items() -> list[Any]:
    return [replace(item, grade=None) for item in family_items(("math", "code", "trivia", "choice"), 1)]


def one_layer(directory: Path, layers: int) -> Worker:
    shape = Shape(hidden_size=32, heads=2, kv_heads=1, intermediate_size=48, layers=layers)
    from simsd.config import WorkerConfig

    return Worker(WorkerConfig(role="target", model=str(write_checkpoint(directory, shape, seed=3)), device="cpu"))


def test_one_pass_is_exact_in_one_layer_and_leaks_in_more(tmp_path: Path) -> None:
    """The two-hop leak needs a second layer (paper, section 3); slots numbered onward are wrong in any."""
    known, block = list(range(4, 24)), [7, *[MASK_ID] * 3]
    for layers, leaks in ((1, False), (3, True)):
        worker = one_layer(tmp_path / str(layers), layers)
        steps = compare(worker, known, block, drafted_path(worker, known, block))
        assert [step.rank for step in steps] == [0, 1, 2]
        assert (summary(steps)["total_variation"] > 1e-4) == leaks
        assert not any(step.wrong for step in steps)
        onward = compare(worker, known, block, drafted_path(worker, known, block), aligned=False)
        assert summary(onward)["total_variation"] > 0.01


def test_sequential_logits_are_the_plain_models(tmp_path: Path) -> None:
    """A wrong draft is called wrong where the plain model says so, and what comes after is not reached."""
    worker = one_layer(tmp_path, 2)
    known, block = list(range(4, 24)), [MASK_ID] * B
    best = {}
    for offset in range(B):
        tokens = known + [11] * offset + [MASK_ID] * (B - offset)
        logits = oracle.dense_logits(worker.model, tokens, oracle.block_causal(len(tokens), B))
        logits[:, MASK_ID] = float("-inf")
        best[offset] = int(logits[len(known) + offset].argmax())
    steps = compare(worker, known, block, [(offset, 11) for offset in range(B)])
    assert [step.wrong for step in steps] == [best[offset] != 11 for offset in range(B)]
    first = next(i for i, step in enumerate(steps) if step.wrong)
    assert [step.reached for step in steps] == [i <= first for i in range(B)]
    right = compare(worker, known, block, [(0, best[0])])
    assert right[0].wrong is False


def test_steps_where_the_draft_is_wrong_are_told_apart() -> None:
    steps = [
        Step(0, True, 0.0, 0.0, wrong=False, reached=True, accepts=True),
        Step(1, False, 1.0, 0.5, wrong=True, reached=True, accepts=True),
        Step(2, True, 0.2, 0.1, wrong=True, reached=False, accepts=False),
    ]
    assert wrong_steps(steps) == [steps[1]]
    assert summary(steps) == {
        "steps": 3,
        "top1": 2 / 3,
        "kl": pytest.approx(0.4),
        "total_variation": pytest.approx(0.2),
    }
    assert summary([])["top1"] is None


def test_steps_of_an_answer_cover_its_blocks(items: list[Any]) -> None:
    loop = TINY.loop(B)
    prompt = loop.tokenizer.encode_messages(items[0].messages)
    steps = steps_of(loop, items[0], own_draft=True, max_blocks=2)
    assert len(steps) in (B - len(prompt) % B, 2 * B - len(prompt) % B)
    assert not wrong_steps(steps)
