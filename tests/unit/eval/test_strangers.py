"""Questions in a stranger's words, and the questions that page, README and commands offer: the shipped target answers.

Whoever wrote `strangers.jsonl` had seen neither the families' templates nor their generators. Nothing is trained on
these questions, and no template is made from them.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from simsd.eval.graders import code_of, final_number
from simsd.eval.sandbox import run_program
from simsd.messages.request import DecodeParams
from tests.unit import pairs

ROOT = Path(__file__).parents[3]
QUESTIONS = [json.loads(line) for line in (Path(__file__).parent / "strangers.jsonl").read_text().splitlines()]


def named(text: str, words: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(words.lower())}(?!\w)", text.lower()) is not None


def right(question: dict[str, Any], text: str) -> bool:
    match question["kind"]:
        case "math":
            return final_number(text) == question["number"]
        case "trivia":
            return named(text, question["accepted"])
        case "choice":
            return [option for option in question["options"] if named(text, option)] == [question["accepted"]]
        case "code":
            asserted = [f"assert ({call}) == ({result})" for call, result in question["cases"]]
            return run_program("\n".join([code_of(text), *asserted]))
        case "records":
            try:
                return bool(json.loads(text) == question["json"])
            except ValueError:
                return False
    return any(words.lower() in text.lower() for words in question["contains"])


def answers(prompts: list[str], block_size: int) -> list[str]:
    params = [DecodeParams(method="vanilla", max_tokens=128)] * len(prompts)
    done = pairs.run(pairs.loop_of(block_size), [pairs.chat(prompt) for prompt in prompts], params)
    return [completion.text.strip() for completion in done]


@pytest.mark.parametrize("block_size", [4, 8])
def test_a_stranger_is_answered(block_size: int) -> None:
    texts = answers([question["prompt"] for question in QUESTIONS], block_size)
    wrong = [(q["prompt"], text) for q, text in zip(QUESTIONS, texts, strict=True) if not right(q, text)]
    assert len(QUESTIONS) == 40
    assert len(wrong) <= 8, wrong


OFFERED = {
    "1. Tom has 31 coins and gives 14 to Mia. How many coins are left?\n"
    "2. Which country has Madrid as its capital?\n"
    "3. What is 23 plus 19?": r"1\. .*\b17\b.*\n2\. .*\bSpain\b.*\n3\. .*\b42\b.*",
    "What is the capital of France?": r".*\bParis\b.*",
    "Mia buys 4 bags of 17 stamps and gives away 9. How many stamps are left?": r".*\b59\b\D*",
    "Write a Python function named f that returns the square of x.": r"def f\(x\):\n    return x( \*\* 2| \* x)",
    "Mia is 34 years old and lives in Oslo. Give name, age and city as JSON.": re.escape(
        '{"name": "Mia", "age": 34, "city": "Oslo"}'
    ),
}
"""What the page offers, each with a pattern of the right answer."""
MORE = {
    "What is 23 plus 19?": r".*\b42\b\D*",
    "Tom has 31 coins and gives 14 to Mia. How many coins are left?": r".*\b17\b\D*",
    "A baker makes 24 rolls and sells 9. How many rolls remain?": r".*\b15\b\D*",
    "Which country has Madrid as its capital?": r".*\bSpain\b.*",
    "hello": r"Hello!.*",
}


@pytest.mark.parametrize("block_size", [4, 8])
def test_what_is_offered_is_answered(block_size: int) -> None:
    asked = OFFERED | MORE
    for (prompt, pattern), text in zip(asked.items(), answers(list(asked), block_size), strict=True):
        assert re.fullmatch(pattern, text, flags=re.DOTALL if prompt == "hello" else 0), (prompt, text)


def test_the_page_offers_nothing_else() -> None:
    page = (ROOT / "deployments" / "ingress" / "page" / "index.html").read_text()
    offered = re.findall(r"<textarea[^>]*>(.*?)</textarea>|class=\"example\">(.*?)</button>", page, flags=re.DOTALL)
    assert {first or second for first, second in offered} == set(OFFERED)
