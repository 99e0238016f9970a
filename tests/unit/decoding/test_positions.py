"""The paper's ablation on the shipped pair: mask slots numbered onward instead of sharing their data row's position."""

from simsd.eval.families import FAMILIES
from simsd.in_process import Completion
from simsd.messages.request import DecodeParams
from tests.unit import pairs


def test_unaligned_positions_collapse() -> None:
    questions = pairs.heldout(8)
    prompts = [pairs.chat(question.prompt) for question in questions]
    params = [DecodeParams(method="simsd", max_tokens=64)] * len(prompts)

    def acceptance(done: list[Completion]) -> float:
        return sum(c.stats.accepted for c in done) / sum(c.stats.accepted + c.stats.recovered for c in done)

    def accuracy(done: list[Completion]) -> float:
        right = [FAMILIES[q.family].check(q, c.text) for q, c in zip(questions, done, strict=True)]
        return sum(right) / len(right)

    aligned = pairs.run(pairs.loop_of(4), prompts, params)
    onward = pairs.run(pairs.loop_of(4, aligned=False), prompts, params)
    assert acceptance(aligned) > 0.85
    assert accuracy(aligned) > 0.7
    assert acceptance(onward) < 0.5
    assert accuracy(onward) < 0.1
