"""Arithmetic in words: stories of one or two steps, totals, rests, differences, and plain sums.

Answers show each step as a sentence, then say the result. Pairs of operands are held out by the rule of
`simsd.eval.math_family`, in every step. Divisions are those of the times table, of which none is held out.
"""

import re
from collections.abc import Sequence
from random import Random

from simsd.eval.families.arithmetic import LIMIT, draw_step, step
from simsd.eval.families.math_stories import draw_goods, draw_story
from simsd.eval.families.math_templates import PLAIN, PLAIN_TWO, SCENES
from simsd.eval.families.parts import Pool, capitalised, counted, in_words, plural, values_split
from simsd.eval.families.people import draw_name
from simsd.eval.families.surface import typed
from simsd.eval.families.words import COLORS, CONTAINERS, PLACES
from simsd.eval.graders import same_number
from simsd.eval.question import Family, Question, Split

WORDS_SHARE = 0.15
"""The share of questions whose numbers are in words."""


def draw(rng: Random, split: Split) -> Question:
    kind = rng.choices((_story, _scene, _plain), (0.45, 0.37, 0.18))[0]
    prompt, answer, numbers = kind(rng, split)
    symbols = re.search(r"} ?[-+*/x] ?{", prompt)
    style = in_words if not symbols and rng.random() < WORDS_SHARE else str
    prompt = prompt.format(**{name: style(n) for name, n in numbers.items()})
    return Question("math", typed(rng, split, capitalised(prompt)), answer)


def worked(ops: str, numbers: Sequence[int]) -> tuple[str, int]:
    """Return steps from left to right as sentences, such as `4 * 17 = 40 + 28 = 68. 68 + 5 = 73.`, and the result."""
    result, steps = numbers[0], []
    for op, n in zip(ops, numbers[1:], strict=True):
        line, result = (f"{result}/{n}={result // n}", result // n) if op == "/" else step(op, result, n)
        steps.append(re.sub(r"([-+*/=])", r" \1 ", line) + ".")
    return " ".join(steps), result


def draw_numbers(rng: Random, ops: str, split: Split) -> list[int]:
    """Draw the operands of one or two steps of the split, with all results below 100 but the last one."""
    values = values_split(split)
    if ops == "/":
        divisor = rng.randint(2, 10)
        return [divisor * rng.randint(2, min(10, (LIMIT - 1) // divisor)), divisor]
    while True:
        a, b = draw_step(rng, ops[0], values)
        if len(ops) == 1:
            return [a, b]
        middle = step(ops[0], a, b)[1]
        if not 2 <= middle < LIMIT:
            continue
        try:
            return [a, b, draw_step(rng, ops[1], values, middle)[1]]
        except LookupError:
            continue


def _named(numbers: Sequence[int]) -> dict[str, int]:
    return dict(zip("abc", numbers, strict=False))


def _story(rng: Random, split: Split) -> tuple[str, str, dict[str, int]]:
    ops = rng.choice(("+", "-", "-", "+-", "-+", "*+", "*-"))
    numbers = draw_numbers(rng, ops, split)
    steps, result = worked(ops, numbers)
    story = draw_story(rng, split, ops)
    return story.prompt, f"{steps} {story.conclusion(result)}", _named(numbers)


def _scene(rng: Random, split: Split) -> tuple[str, str, dict[str, int]]:
    scene = rng.choice([scene for scene in SCENES if scene.op != "/" or split != "heldout"])
    numbers = draw_numbers(rng, scene.op, split)
    steps, result = worked(scene.op, numbers)
    n = draw_name(rng, split)
    m = draw_name(rng, split, besides=n.name)
    _, noun = draw_goods(rng, split)
    new = split == "phrasing"
    container = CONTAINERS.draw(rng, new)
    color, other_color = _two(rng, COLORS, new)
    place, other_place = _two(rng, PLACES, new)
    times = "twice" if numbers[0] == 2 and rng.random() < 0.6 else "{a} times"
    words = {
        "n": n.name, "m": m.name, "he": n.again, "t": noun, "ts": plural(noun), "c": container, "cs": plural(container),
        "color": color, "other_color": other_color, "place": place, "other_place": other_place, "times": times,
    }  # fmt: skip
    prompt = scene.wording.draw(rng, split).format(a="{a}", b="{b}", **words)
    more = counted(result, noun).replace(" ", " more ", 1)
    results = {"r": counted(result, noun), "dollars": counted(result, "dollar"), "years": counted(result, "year")}
    conclusion = scene.conclusion.format(more=more, **results, **words)
    return prompt, f"{steps} {conclusion}", _named(numbers)


def _two(rng: Random, words: Pool, new: bool) -> tuple[str, str]:
    first, second = rng.sample(words.kept if new else words.taught, 2)
    return first, second


def _plain(rng: Random, split: Split) -> tuple[str, str, dict[str, int]]:
    ops = rng.choice(("+", "+", "-", "-", "*", "*" if split == "heldout" else "/", *PLAIN_TWO))
    numbers = draw_numbers(rng, ops, split)
    steps, _ = worked(ops, numbers)
    return (PLAIN | PLAIN_TWO)[ops].draw(rng, split), steps, _named(numbers)


def verdict(question: Question, text: str) -> bool:
    """Whether the last number of the text is the result."""
    return same_number(text, question.answer)


MATH = Family("math", draw, verdict)
