"""Small Python functions, which are checked by running them. Pairs of a function and its constants are held out."""

import re
from ast import literal_eval
from dataclasses import dataclass
from random import Random
from typing import Any

from simsd.eval.question import Family, Question, Split, held_out
from simsd.eval.sandbox import run_function

NAMES = "solve run calc check apply build find make task work".split()
DEFAULT_NAME = NAMES[0]


@dataclass(frozen=True)
class Recipe:
    """A function with one or two constants, {k} and {j}.

    argument: its parameter, which is x (a number), xs (a list of numbers) or s (a string). descriptions, body:
    templates of what it does and of its code.
    """

    name: str
    argument: str
    descriptions: tuple[str, ...]
    body: str
    two_constants: bool = False


LOOP = "result = []\nfor x in xs:\n    if {test}:\n        result.append(x)\nreturn result"
COUNT = "count = 0\nfor x in xs:\n    if {test}:\n        count += 1\nreturn count"
SUM = "total = 0\nfor x in xs:\n    if {test}:\n        total += x\nreturn total"

RECIPES = (
    Recipe("add", "x", ("adds {k} to a number", "returns a number plus {k}"), "return x + {k}"),
    Recipe("subtract", "x", ("subtracts {k} from a number", "returns a number minus {k}"), "return x - {k}"),
    Recipe("multiply", "x", ("multiplies a number by {k}", "returns {k} times a number"), "return x * {k}"),
    Recipe("remainder", "x", ("returns the remainder of a number divided by {k}",), "return x % {k}"),
    Recipe("divide", "x", ("divides a number by {k} and rounds down",), "return x // {k}"),
    Recipe("greater", "x", ("checks if a number is greater than {k}",), "return x > {k}"),
    Recipe("less", "x", ("checks if a number is less than {k}",), "return x < {k}"),
    Recipe("divisible", "x", ("checks if a number is divisible by {k}",), "return x % {k} == 0"),
    Recipe("max", "x", ("returns the larger of a number and {k}",), "return max(x, {k})"),
    Recipe("min", "x", ("returns the smaller of a number and {k}",), "return min(x, {k})"),
    Recipe("distance", "x", ("returns the distance between a number and {k}",), "return abs(x - {k})"),
    Recipe(
        "linear",
        "x",
        ("multiplies a number by {k} and then adds {j}",),
        "y = x * {k}\nreturn y + {j}",
        two_constants=True,
    ),
    Recipe(
        "branch",
        "x",
        ("returns {k} if a number is negative and {j} otherwise",),
        "if x < 0:\n    return {k}\nreturn {j}",
        two_constants=True,
    ),
    Recipe("first", "xs", ("returns the first {k} items of a list",), "return xs[:{k}]"),
    Recipe("last", "xs", ("returns the last {k} items of a list",), "return xs[-{k}:]"),
    Recipe("append", "xs", ("adds {k} to the end of a list",), "return xs + [{k}]"),
    Recipe("contains", "xs", ("checks if a list contains {k}",), "return {k} in xs"),
    Recipe("keep", "xs", ("keeps the items of a list greater than {k}",), LOOP.format(test="x > {k}")),
    Recipe("drop", "xs", ("removes every {k} from a list",), LOOP.format(test="x != {k}")),
    Recipe("count", "xs", ("counts how often {k} is in a list",), COUNT.format(test="x == {k}")),
    Recipe("count_less", "xs", ("counts the items of a list less than {k}",), COUNT.format(test="x < {k}")),
    Recipe("sum", "xs", ("sums the items of a list greater than {k}",), SUM.format(test="x > {k}")),
    Recipe("sum_multiples", "xs", ("sums the items of a list divisible by {k}",), SUM.format(test="x % {k} == 0")),
    Recipe("repeat", "s", ("repeats a string {k} times",), "return s * {k}"),
    Recipe("longer", "s", ("checks if a string is longer than {k}",), "return len(s) > {k}"),
    Recipe("cut", "s", ("returns the first {k} letters of a string",), "return s[:{k}]"),
)


def _inputs(argument: str, k: int, j: int) -> tuple[str, ...]:
    values: tuple[Any, ...]
    if argument == "x":
        values = (0, 1, k - 1, k, k + 1, 3 * k, 7 * k + 3, -k - 2, j)
    elif argument == "xs":
        values = ([], [k], [k - 1, k, k + 1, k, 2 * k], [-3, 5 * k, 0, 3 * k], list(range(k + 5)))
    else:
        values = ("", "ab", "abcde" * (k // 5) + "abcdefg"[: k % 5], "xyz" * k, "q" * (k + 1))
    return tuple(repr(value) for value in values)


def draw(rng: Random, split: Split) -> Question:
    recipe = rng.choice(RECIPES)
    while True:
        k, j = rng.randint(2, 99), rng.randint(2, 99)
        key = (k, j) if recipe.two_constants else (k,)
        if held_out("code", recipe.name, *key) == (split == "heldout"):
            break
    named = rng.random() < 0.75
    name = rng.choice(NAMES) if named else DEFAULT_NAME
    called = f" named {name}" if named else ""
    what = rng.choice(recipe.descriptions).format(k=k, j=j)
    body = recipe.body.format(k=k, j=j).replace("\n", "\n    ")
    return Question(
        "code",
        f"Write a Python function{called} that {what}.",
        f"def {name}({recipe.argument}):\n    {body}",
        function=name,
        inputs=_inputs(recipe.argument, k, j),
    )


def expected(question: Question) -> list[str]:
    """Return the results of the reference answer, as Python literals. It is trusted, so it runs in this process."""
    scope: dict[str, Any] = {}
    exec(question.answer, scope)
    return [repr(scope[question.function](literal_eval(argument))) for argument in question.inputs]


def verdict(question: Question, text: str) -> bool:
    """Whether the function, run in the sandbox, gives the reference's results on all inputs, including their types."""
    fenced = re.search(r"```(?:python)?\n(.*?)```", text, flags=re.DOTALL)
    got = run_function(fenced.group(1) if fenced else text, question.function, question.inputs)
    return got == expected(question)


CODE = Family("code", draw, verdict)
