"""The four families: splits that do not meet, generators that repeat, checkers that cannot be talked round."""

from random import Random

import pytest

from simsd.eval.families import FAMILIES, Question, leaked_prompts
from simsd.eval.math_family import operand_pair_held_out, step
from simsd.eval.sandbox import run_function
from simsd.eval.score import score, wilson_interval
from simsd.eval.trivia_family import FACTS, OPENINGS, held_out_phrasing

TRAIN_PROMPTS = 60_000


def test_no_held_out_prompt_among_60000_training_prompts() -> None:
    rng = Random("leak")
    families = list(FAMILIES.values())
    train = [families[i % len(families)].draw(rng, "train").prompt for i in range(TRAIN_PROMPTS)]
    assert leaked_prompts(train, n=1000) == []


def test_the_leak_check_would_find_a_leak() -> None:
    leak = FAMILIES["math"].questions("heldout", 5)[3].prompt
    assert leaked_prompts(["What?", leak], n=50) == [leak]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_same_seed_same_questions(name: str, split: str) -> None:
    family = FAMILIES[name]
    first = family.questions(split, 60, seed=3)
    assert first == family.questions(split, 60, seed=3)
    assert first != family.questions(split, 60, seed=4)
    assert len({q.prompt for q in first}) == len(first) == 60
    assert first[:20] == family.questions(split, 20, seed=3)


def test_more_questions_than_there_are_gives_all_of_them() -> None:
    assert len(FAMILIES["trivia"].questions("heldout", 10_000)) == len(OPENINGS) * len(FACTS)


def _gist(question: Question) -> str:
    """What must differ for an answer to be wrong."""
    return question.accepted or question.answer.rsplit("####")[-1]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_checker_takes_the_taught_answer_and_no_other_questions(name: str, split: str) -> None:
    family = FAMILIES[name]
    questions = family.questions(split, 8, seed=1)
    for question, other in zip(questions, questions[1:] + questions[:1], strict=True):
        assert family.check(question, question.answer)
        assert not family.check(question, "")
        if _gist(other) != _gist(question):
            assert not family.check(question, other.answer)


def test_a_question_of_another_family_is_refused() -> None:
    with pytest.raises(ValueError, match="math"):
        FAMILIES["code"].check(FAMILIES["math"].questions("train", 1)[0], "#### 1")


def test_math_steps_are_held_out_in_both_orders_and_the_times_table_never() -> None:
    assert all(
        operand_pair_held_out(op, a, b) == operand_pair_held_out(op, b, a)
        for op in "+*"
        for a in range(2, 40)
        for b in range(2, 40)
    )
    assert not any(operand_pair_held_out("*", a, b) for a in range(2, 11) for b in range(2, 11))
    assert step("*", 4, 17) == ("4*17=40+28=68", 68)
    assert step("-", 50, 8) == ("50-8=42", 42)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("23+45=68\n#### 68", True),
        ("so it is\n#### 68.", True),
        ("#### 68\n#### 67", False),
        ("#### 680", False),
        ("68", False),
        ("#### -68", False),
    ],
)
def test_math_checker(text: str, right: bool) -> None:
    assert FAMILIES["math"].check(Question("math", "What is 23 + 45?", "23+45=68\n#### 68"), text) is right


def test_trivia_holds_out_one_phrasing_a_fact_and_never_the_plain_one() -> None:
    assert {held_out_phrasing(kind, subject) for kind, subject, _ in FACTS} == {1, 2, 3, 4}
    prompts = {q.prompt for q in FAMILIES["trivia"].questions("train", 5000)}
    assert len(prompts) == 4 * len(FACTS)
    assert "What is the capital of France?" in prompts


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("The capital of France is Paris.", True),
        ("Paris", True),
        ("The capital of France is Rome.", False),
        ("Paris or Rome.", False),
        ("Parisian", False),
        ("Paris " * 30, False),
    ],
)
def test_trivia_checker(text: str, right: bool) -> None:
    question = next(q for q in FAMILIES["trivia"].questions("train", 400) if "capital of France" in q.prompt)
    assert FAMILIES["trivia"].check(question, text) is right


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("The answer is Mexico.", True),
        ("Mexico", True),
        ("The answer is Mexico City.", False),
        ("The answer is Peru.", False),
        ("Mexico or Peru", False),
        ("Not Peru, the answer is Mexico.", True),
        ("(A)", False),
    ],
)
def test_choice_checker(text: str, right: bool) -> None:
    question = Question("choice", "?", "", options=("Mexico City", "Mexico", "Peru", "Cuba"), accepted="Mexico")
    assert FAMILIES["choice"].check(question, text) is right


ADD_3 = Question(
    "code", "Write a Python function named run that adds 3 to a number.", "def run(x):\n    return x + 3",
    function="run", inputs=("0", "-4", "10"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("def run(x):\n    return x + 3", True),
        ("Here it is:\n```python\ndef run(x):\n    y = 3\n    return y + x\n```", True),
        ("def run(x):\n    return x + 4", False),
        ("def run(x):\n    print(x + 3)", False),
        ("print('[3, -1, 13]')\ndef run(x):\n    return str(x + 3)", False),
        ("def run(x):\n    return x + 3.0", False),
        ("def other(x):\n    return x + 3", False),
        ("def run(x):\n    return x + ", False),
        ("import os\ndef run(x):\n    return x + 3", False),
        ("def run(x):\n    return x + int(open('/etc/passwd').read() != '') + 2", False),
    ],
)
def test_code_checker(text: str, right: bool) -> None:
    assert FAMILIES["code"].check(ADD_3, text) is right


def test_printing_beside_the_right_result_does_no_harm() -> None:
    assert FAMILIES["code"].check(ADD_3, "def run(x):\n    print('[1]' * 1000)\n    return x + 3")


def test_sandbox_stops_what_hangs() -> None:
    assert run_function("def run(x):\n    while True:\n        pass", "run", ("1",)) is None


@pytest.mark.parametrize(
    "body",
    ["return 'x' * (2 * 10**9)", "return [0] * 10**9", "raise ValueError(x)", "return run(x)", "return ().__class__.y"],
)
def test_sandbox_gives_none_for_what_fails(body: str) -> None:
    assert run_function(f"def run(x):\n    {body}", "run", ("1",)) is None


def test_score_counts_by_family() -> None:
    math = FAMILIES["math"].questions("heldout", 4)
    trivia = FAMILIES["trivia"].questions("heldout", 2)
    texts = [q.answer for q in math[:3]] + ["", "", trivia[1].answer]
    result = score([*math, *trivia], texts)
    assert list(result) == ["math", "trivia"]
    assert (result["math"].n, result["math"].correct, result["math"].accuracy) == (4, 3, 0.75)
    assert result["trivia"].correct == 1
    with pytest.raises(ValueError, match="6 questions but 1 texts"):
        score([*math, *trivia], [""])


def test_wilson_interval_against_published_values() -> None:
    low, high = wilson_interval(15, 148)
    assert (round(low, 4), round(high, 4)) == (0.0624, 0.1605)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    for n in range(1, 400):
        assert (wilson_interval(n, n)[1], wilson_interval(0, n)[0]) == (1.0, 0.0)
    with pytest.raises(ValueError, match=r"0\.\.2"):
        wilson_interval(3, 2)
