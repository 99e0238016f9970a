"""The families of questions: splits that do not meet, answers that are right, prompts that vary and fit."""

import json
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsd.eval.families import FAMILIES, ListQuestion, Question, Split, parts_right
from simsd.eval.families.__main__ import main
from simsd.eval.families.arithmetic import operand_pair_held_out, step
from simsd.eval.families.code_family import FRAMES, FUNCTION_NAMES, UNNAMED
from simsd.eval.families.lists_family import HEADERS
from simsd.eval.families.manners_templates import OUTSIDE_WORDS, REPLIES
from simsd.eval.families.math_stories import GOODS
from simsd.eval.families.parts import (
    ALTERNATIVES,
    Pool,
    Wording,
    conjugated,
    counted,
    expand,
    in_words,
    plural,
    wording,
)
from simsd.eval.families.records_domains import DOMAINS, KEYS
from simsd.eval.families.records_family import answer_of, number_held_out
from simsd.eval.families.surface import CLOSINGS, OPENINGS
from simsd.eval.families.words import (
    ANIMALS,
    CITIES,
    COLORS,
    CONTAINERS,
    DISHES,
    FRUIT,
    JOBS,
    MEN,
    PLACES,
    THINGS,
    WOMEN,
)
from simsd.eval.sandbox import run_function
from simsd.models.files import ASSETS
from simsd.tokens.tokenizer import Tokenizer

SPLITS: tuple[Split, ...] = get_args(Split)
SHORT = [name for name in FAMILIES if name != "lists"]
"""Families whose questions stand for themselves. Lists are made of these, and fewer of them are looked at."""
NAMES = Pool(MEN.words + WOMEN.words)
NOUNS = Pool(tuple(noun for goods in GOODS for noun in goods.pool.words))


@cache
def drawn(name: str, split: Split, n: int) -> tuple[Question, ...]:
    """Draw questions as training does, with repetitions."""
    rng = Random(f"test/{name}/{split}")
    return tuple(FAMILIES[name].draw(rng, split) for _ in range(n))


def training(name: str) -> tuple[Question, ...]:
    return drawn(name, "train", 6000 if name != "lists" else 150)


def folded(prompt: str) -> str:
    """A prompt without what changes when it is typed in another way."""
    return " ".join(re.findall(r"\w+|[-+*=]", prompt.lower()))


@pytest.mark.parametrize("split", ["heldout", "phrasing"])
@pytest.mark.parametrize("name", FAMILIES)
def test_no_held_out_prompt_is_drawn_in_training(name: str, split: Split) -> None:
    seen = {folded(question.prompt) for question in training(name)}
    held = drawn(name, split, 2000 if name in SHORT else 20)
    assert not [question.prompt for question in held if folded(question.prompt) in seen]


@pytest.mark.parametrize(
    ("name", "pools"),
    [
        ("math", (NAMES, CONTAINERS, COLORS)),
        ("code", (FUNCTION_NAMES,)),
        ("records", (NAMES, CITIES, COLORS, JOBS)),
        ("manners", (*OUTSIDE_WORDS.values(), NAMES)),
    ],
)
def test_kept_words_are_in_no_training_prompt(name: str, pools: tuple[Pool, ...]) -> None:
    words = Counter(word for question in training(name) for word in re.findall(r"\w+", question.prompt.lower()))
    kept = [word.lower() for pool in pools for word in pool.kept if " " not in word]
    assert not [word for word in kept if words[word]]
    seen = {word.lower() for pool in pools for word in pool.taught if words[word.lower()]}
    assert len(seen) > 0.9 * len({word.lower() for pool in pools for word in pool.taught if " " not in word})


def test_kept_objects_are_in_no_training_story() -> None:
    text = "\n".join(question.prompt.lower() for question in training("math"))
    for pool in (FRUIT, DISHES, THINGS, ANIMALS):
        assert not [noun for noun in pool.kept if re.search(rf"(?<![\w ]) {plural(noun)}\b", text)]


def test_kept_verbs_are_in_no_training_story() -> None:
    text = "\n".join(question.prompt for question in training("math"))
    verbs = "donat part mail misplac pass carr chew swallow obtain collect fetch rais order prepar begin imagin suppos"
    assert not re.findall(rf"\b(?:{verbs.replace(' ', '|')})(?:e?d|e?s|ie[ds])?\b", text, flags=re.IGNORECASE)
    assert len(re.findall(r"\b(?:gives|gave|loses|lost|sells|sold|buys|bought|finds|found)\b", text)) > 1000


def fixed_parts(template: str) -> list[str]:
    """The longest part of a template, or of each way to expand it, that has no field in it."""
    ways = [template]
    while any(ALTERNATIVES.search(way) for way in ways):
        ways = [
            way[: match.start()] + choice + way[match.end() :]
            for way in ways
            for match in [ALTERNATIVES.search(way)]
            if match
            for choice in match[1].split("|")
        ] + [way for way in ways if not ALTERNATIVES.search(way)]
    return [max(re.split(r"\{\w*\}", way), key=len) for way in ways]


@pytest.mark.parametrize(
    ("name", "wordings"),
    [
        ("code", (FRAMES, UNNAMED)),
        ("lists", (HEADERS,)),
        ("records", tuple(domain.sentences for domain in DOMAINS)),
        ("trivia", (OPENINGS, CLOSINGS)),
    ],
)
def test_kept_wordings_are_in_no_training_prompt_and_taught_ones_are(name: str, wordings: tuple[Wording, ...]) -> None:
    text = "\n".join(question.prompt for question in training(name))
    for one in wordings:
        for template in one.kept:
            assert not [part for part in fixed_parts(template) if len(part) > 8 and part in text], template
        for template in one.taught:
            assert any(part in text for part in fixed_parts(template)), template


def test_a_new_phrasing_is_new_but_for_its_words() -> None:
    """Without numbers, names and nouns, no arithmetic prompt of the phrasing split is one of training."""
    words = {name.lower() for name in NAMES.words} | {plural(noun) for noun in NOUNS.words} | set(NOUNS.words)

    def skeleton(prompt: str) -> str:
        return re.sub(r"\d+", "9", " ".join("*" if word in words else word for word in folded(prompt).split()))

    taught = {skeleton(question.prompt) for question in training("math")}
    new = [skeleton(question.prompt) for question in drawn("math", "phrasing", 1000)]
    assert sum(one in taught for one in new) == 0


def test_held_out_values_take_no_part_in_training() -> None:
    for question in training("math"):
        for a, op, b in re.findall(r"(?=\b(\d+) ([-+*]) (\d+)\b)", question.answer):
            assert not operand_pair_held_out(op, int(a), int(b)), question
    for question in training("records"):
        answer = answer_of(question)
        values = answer.get("arguments", answer).values()
        assert not [value for value in values if isinstance(value, int) and number_held_out(value)]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", FAMILIES)
def test_same_seed_same_questions(name: str, split: Split) -> None:
    family, n = FAMILIES[name], 20 if name in SHORT else 5
    first = family.questions(split, n, seed=3)
    assert first == family.questions(split, n, seed=3)
    assert first != family.questions(split, n, seed=4)
    assert len({question.prompt for question in first}) == len(first) == n


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", FAMILIES)
def test_graders_take_the_taught_answer_and_no_other_questions(name: str, split: Split) -> None:
    family = FAMILIES[name]
    questions = drawn(name, split, 4 if name in ("code", "lists") else 300)
    for question, other in pairwise(questions):
        assert family.check(question, question.answer), question
        assert not family.check(question, "")
        if name == "math":
            assert not family.check(question, re.sub(r"\d+(?=\D*$)", "0", question.answer))
        elif name != "code" and (question.accepted or question.answer) not in other.answer:
            assert not family.check(question, other.answer), (question, other)


def test_reference_code_runs_and_tells_functions_apart() -> None:
    """In this process, since it is trusted: every recipe gives results, and a changed constant changes one of them."""
    from simsd.eval.families.code_family import expected

    for split in SPLITS:
        for question in drawn("code", split, 600):
            results = expected(question)
            assert len(results) == len(question.inputs) >= 4
            constant = re.search(r"(?<=[ -])([2-9]\d)\b", question.answer)
            if constant:
                changed = question.answer[: constant.start()] + "1" + question.answer[constant.start() :]
                other = Question("code", "", changed, function=question.function, inputs=question.inputs)
                assert expected(other) != results, question


def test_code_is_run_not_read() -> None:
    question = next(q for q in drawn("code", "train", 600) if q.answer.endswith("return x ** 2"))
    name = question.function
    assert FAMILIES["code"].check(question, f"```python\ndef {name}(x):\n    y = x\n    return y * x\n```")
    assert not FAMILIES["code"].check(question, f"def {name}(x):\n    return x * 2")
    assert not FAMILIES["code"].check(question, f"def {name}(x):\n    return str(x * x)")
    assert not FAMILIES["code"].check(question, "def another_name(x):\n    return x * x")


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ('{"name": "Mia", "age": 34}', True),
        ('{"age": 34, "name": "Mia"}', True),
        ('{"name": "Mia", "age": "34"}', False),
        ('{"name": "Mia"}', False),
        ('{"name": "Mia", "age": 34, "city": "Oslo"}', False),
        ('{"name": "Mia", "age": 34', False),
        ('Here it is: {"name": "Mia", "age": 34}', False),
    ],
)
def test_records_are_parsed(text: str, right: bool) -> None:
    question = Question("records", "", '{"name": "Mia", "age": 34}')
    assert FAMILIES["records"].check(question, text) is right


def test_a_call_of_a_tool_of_the_template_stands_in_its_marks() -> None:
    asked = next(question for question in drawn("records", "train", 300) if question.tools)
    called = json.dumps(answer_of(asked))
    assert asked.answer == f"<tool_call>\n{called}\n</tool_call>"
    assert FAMILIES["records"].check(asked, asked.answer)
    assert not FAMILIES["records"].check(asked, called)


def test_records_take_their_values_from_the_prompt() -> None:
    calls = 0
    for split in SPLITS:
        for question in drawn("records", split, 300):
            answer = answer_of(question)
            calls += "arguments" in answer
            values = answer.get("arguments", answer)
            assert all(str(value).lower() in question.prompt.lower() for value in values.values()), question
            assert all(key in question.prompt + question.tools for key in values)
    assert calls > 200


LIST = ListQuestion(
    "lists",
    "1. What is 1 + 2?\n2. What is 3 + 4?",
    "1. 1 + 2 = 3.\n2. 3 + 4 = 7.",
    parts=(Question("math", "", "1 + 2 = 3."), Question("math", "", "3 + 4 = 7.")),
)


@pytest.mark.parametrize(
    ("text", "parts", "whole"),
    [
        ("1. 1 + 2 = 3.\n2. 3 + 4 = 7.", [True, True], True),
        ("1. 3\n2. 7", [True, True], True),
        ("1. 3\n2. 8", [True, False], False),
        ("2. 7\n1. 3", [False, False], False),
        ("1. 3", [True, False], False),
        ("1. 3\n3. 7", [True, False], False),
        ("1. 3\n2. 7\n3. 9", [True, True], False),
        ("Well: 1. 3\n2. 7", [False, False], False),
        ("", [False, False], False),
    ],
)
def test_lists_are_graded_part_by_part(text: str, parts: list[bool], whole: bool) -> None:
    assert parts_right(LIST, text) == parts
    assert FAMILIES["lists"].check(LIST, text) is whole


@pytest.mark.parametrize("split", SPLITS)
def test_lists_have_3_to_12_parts_of_several_families(split: Split) -> None:
    lists = [question for question in drawn("lists", split, 40) if isinstance(question, ListQuestion)]
    sizes = Counter(len(question.parts) for question in lists)
    assert min(sizes) == 3
    assert 8 <= max(sizes) <= 12
    assert len(lists) == 40
    assert {part.family for question in lists for part in question.parts} >= {"math", "trivia", "code", "choice"}
    assert all(len({part.prompt for part in question.parts}) == len(question.parts) for question in lists)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", FAMILIES)
def test_prompts_fit_200_tokens_and_answers_250(name: str, split: Split) -> None:
    tokenizer = Tokenizer.load(ASSETS / "target")
    for question in drawn(name, split, 400 if name in SHORT else 40):
        assert len(tokenizer.encode(question.prompt)) <= 200
        length = len(tokenizer.encode(question.answer))
        assert length <= 250
        assert length >= 60 or name != "lists"


@pytest.mark.parametrize("name", SHORT)
def test_prompts_vary(name: str) -> None:
    prompts = [question.prompt for question in training(name)]
    assert len(set(prompts)) >= {"trivia": 3000, "manners": 2500}.get(name, 5000)
    # Most prompts share neither their first four words nor their last four with many others.
    for shape in (lambda words: words[:4], lambda words: words[-4:]):
        most = Counter(tuple(shape(re.sub(r"\d+", "9", prompt).split())) for prompt in prompts).most_common(1)
        assert most[0][1] <= {"choice": 0.2, "code": 0.08, "records": 0.08}.get(name, 0.06) * len(prompts), most


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("split", SPLITS)
def test_nothing_is_left_of_a_template(name: str, split: Split) -> None:
    for question in drawn(name, split, 600 if name in SHORT else 40):
        text = question.prompt + "\n" + (question.answer if name in SHORT else "")
        if name not in ("records", "lists", "code"):
            assert not re.search(r"[{}\[\]<>|]", text), text
        assert not re.search(r"\{\w+\}|<name>|\bNone\b", text), text
        assert not re.search(r"[ ]{2}(?! )|\?\?|\.\.| [.,!](?!=)", re.sub(r"\n +", "\n", text)), text
        assert not re.search(r"\b[Aa] [aeio]\w+", re.sub(r"\b[a-z]\b and|[Aa] and|[Aa] one\b", "", text)) or (
            name in ("code", "lists", "manners")
        ), text


def test_replies_name_three_things_to_ask() -> None:
    for kind in ("greeting", "abilities"):
        assert len(re.findall(r"What is|Write a", REPLIES[kind])) == 3
    assert "I only know" in REPLIES["outside"]


@given(st.integers(0, 99))
def test_numbers_in_words_are_read_back(n: int) -> None:
    parts = in_words(n).split("-")
    values = {in_words(i): i for i in [*range(20), *range(20, 100, 10)]}
    assert sum(values[part] for part in parts) == n


@given(st.randoms(use_true_random=False), st.sampled_from(SPLITS))
def test_wordings_keep_apart(rng: Random, split: Split) -> None:
    one = wording("[a|b] taught\n--\nkept [c|d]")
    assert one.draw(rng, split) in ({"kept c", "kept d"} if split == "phrasing" else {"a taught", "b taught"})


def test_grammar_by_hand() -> None:
    nouns = "coin:coins box:boxes cherry:cherries toy:toys loaf:loaves tomato:tomatoes sheep:sheep brush:brushes"
    for singular, many in (pair.split(":") for pair in nouns.split()):
        assert plural(singular) == many
    assert plural("tennis ball") == "tennis balls"
    assert (counted(1, "knife"), counted(2, "knife")) == ("1 knife", "2 knives")
    assert conjugated("give away 5", third=True, past=False) == "gives away 5"
    assert conjugated("give away 5", third=False, past=False) == "give away 5"
    assert conjugated("give away 5", third=True, past=True) == "gave away 5"
    assert [conjugated(v, True, False) for v in ("have", "carry", "pass", "buy")] == [
        "has",
        "carries",
        "passes",
        "buys",
    ]
    assert [conjugated(v, True, True) for v in ("carry", "share", "drop", "own")] == [
        "carried", "shared", "dropped", "owned",
    ]  # fmt: skip
    assert expand(Random(0), "[a|[b|b]]") in ("a", "b")


def test_every_pool_keeps_some_words_and_not_many() -> None:
    for pool in (MEN, WOMEN, FRUIT, DISHES, THINGS, ANIMALS, PLACES, CONTAINERS, CITIES, COLORS, JOBS, FUNCTION_NAMES):
        assert 0 < len(pool.kept) < len(pool.words + pool.kept) / 3
        assert not set(pool.kept) & set(pool.taught)
    assert len(NOUNS.words) >= 150
    assert all(set(KEYS[field].taught).isdisjoint(KEYS[field].kept) for field in KEYS)


def test_samples_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--family", "math", "--n", "5", "--split", "phrasing"])
    assert capsys.readouterr().out.count("  -> ") == 5


def test_a_question_of_another_family_is_refused() -> None:
    with pytest.raises(ValueError, match="math"):
        FAMILIES["code"].check(FAMILIES["math"].questions("train", 1)[0], "1")


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
    function="run", inputs=("(0,)", "(-4,)", "(10,)"),
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
