"""Small Python functions of one or two operations, described in many ways and checked by running them.

A function with constants is held out by these; one without, by its name and its argument's.
"""

from ast import literal_eval
from dataclasses import dataclass
from random import Random
from typing import Any

from simsd.eval.families.code_recipes import OPERATIONS, RECIPES
from simsd.eval.families.parts import capitalised, conjugated, invented, pool, wording
from simsd.eval.families.surface import typed
from simsd.eval.graders import code_of
from simsd.eval.question import Family, Question, Split, held_out
from simsd.eval.sandbox import run_function

FUNCTION_NAMES = pool(
    """f, g, h, run, solve, calc, check, apply, build, find, make, task, work, func, get, go, process, helper, step,
    test, change, update, compute, convert, answer, result, do_it, my_func, my_function, eval_it, foo, bar, main_step,
    fn, use, add, square, double, total, count, length, largest, is_even, reverse, multiply, difference, average,
    keep, select, method, try_it, action, output, value_of, plus, minus, one, two, k, t, q""",
    kept="execute, perform, worker, handle, transform, operate, baz, w, my_code",
)
DEFAULT_NAME = "f"
INVENTED_SHARE = 0.3
"""The share of function names, and of arguments' names, that are invented words in training."""
NUMBER_NAMES = pool("x, n, num, a, y, number, value", kept="m, val")
PAIR_NAMES = pool("a b, x y, m n, first second, p q", kept="u v, left right")
LIST_NAMES = pool("xs, items, values, numbers, nums, lst", kept="data, elements")
STRING_NAMES = pool("s, text, word, string", kept="line, phrase")
NAMES = {"number": NUMBER_NAMES, "numbers": PAIR_NAMES, "list": LIST_NAMES, "string": STRING_NAMES}
PLAIN_NAMES = {"number": "x", "numbers": "a b", "list": "xs", "string": "s"}
PHRASES = {"number": "a number", "numbers": "two numbers", "list": "a list", "string": "a string"}

FRAMES = wording("""
    Write a [|Python ]function [named|called] {f} that {does}.
    Write a [|Python ]function {f} [that|which] {does}.
    Write a [|Python ]function {f}({args}) that {does}.
    Write me a [|Python ]function [named|called] {f} that {does}.
    Write {f}({args}), a [|Python ]function that {does}.
    Define a [|Python ]function {f}({args}) that {does}.
    Define {f}({args}), which {does}.
    Create a [|Python ]function [named|called] {f} that {does}.
    Create a [|Python ]function {f} to {do}.
    Make a [|Python ]function {f} that {does}.
    Implement a function {f} that {does}.
    Implement {f}({args}), which {does}.
    I need a [|Python ]function {f} that {does}.
    I want a [|Python ]function [named|called] {f} to {do}.
    [Can|Could] you write a [|Python ]function {f} that {does}?
    How do I write a [|Python ]function {f} that {does}?
    Please write a [|Python ]function [named|called] {f} that {does}.
    Give me a [|Python ]function {f} that {does}.
    Show me a [|Python ]function {f}({args}) that {does}.
    Write a [|Python ]function that {does}. [Call it|Name it] {f}.
    Python function {f} that {does}.
    --
    Program a function {f} that {does}.
    In Python, how would {f}({args}) look if it {does}?
    The function {f} should {do}. Write it in Python.
    Complete the function {f}({args}) so that it {does}.
    My code has to {do}. Put that into a function {f}.
    What is the Python code of a function {f} that {does}?
""")
UNNAMED = wording("""
    Write a [|Python ]function that {does}.
    Write a [|Python ]function to {do}.
    Write Python code that {does}.
    Create a [|Python ]function that {does}.
    I need a [|Python ]function that {does}.
    [Can|Could] you write a [|Python ]function that {does}?
    How do I {do} in Python?
    Give me a [|Python ]function that {does}.
    --
    Code that {does}, in Python.
    What does Python code that {does} look like?
    Show how to {do} in Python.
""")
RETURNS = wording("return\n return\n return\n give\n compute\n calculate\n--\n produce\n give back")
CHECKS = wording("""
    check if {}
    check whether {}
    tell if {}
    return True if {}
    return whether {}
    --
    find out if {}
    decide whether {}
""")
SEQUENCES = wording("""
    {0} and then {1}
    {0}, then {1}
    first {0} and then {1}
    {0} and {1}
    --
    {0} and after that {1}
    {0} and finally {1}
""")


@dataclass(frozen=True)
class Task:
    """A function to write: what it does, as clauses with the verb first, its kind of argument, and its code."""

    name: str
    clauses: tuple[str, ...]
    argument: str
    body: str
    k: int
    j: int

    @property
    def constants(self) -> tuple[int, ...]:
        """The constants that its code has."""
        return tuple(n for field, n in (("{k}", self.k), ("{j}", self.j)) if field in self.body)


def draw(rng: Random, split: Split) -> Question:
    """Draw a function. In the phrasing split the frame or the description is new, or both are."""
    new = rng.choice(({"frame"}, {"says"}, {"frame", "says"})) if split == "phrasing" else set()
    frame_split: Split = "phrasing" if "frame" in new else "train"
    says_split: Split = "phrasing" if "says" in new else "train"
    while True:
        task = (_two_operations if rng.random() < 0.3 else _one_recipe)(rng, says_split)
        kind = task.argument.removeprefix("filled ")
        unnamed = rng.random() < 0.15
        name = DEFAULT_NAME if unnamed else _name(rng, split)
        frame = (UNNAMED if unnamed else FRAMES).draw(rng, frame_split)
        shown = "{args}" in frame or kind == "numbers" or rng.random() < 0.4
        names = _argument_names(rng, split, kind) if shown else PLAIN_NAMES[kind].split()
        key: tuple[object, ...] = task.constants or (name, *names)
        if split == "phrasing" or held_out("code", task.name, *key) == (split == "heldout"):
            break
    words = {"x": names[0] if shown else PHRASES[kind], "y": names[-1], "k": task.k, "j": task.j}
    clauses = [clause.format(**words) for clause in task.clauses]
    does = [conjugated(clause, third=True, past=False) for clause in clauses]
    order = SEQUENCES.draw(rng, says_split) if len(clauses) == 2 else "{0}"
    prompt = frame.format(f=name, args=", ".join(names), do=order.format(*clauses), does=order.format(*does))
    body = task.body.format(x=names[0], y=names[-1], k=task.k, j=task.j).replace("\n", "\n    ")
    return Question(
        "code",
        typed(rng, split, capitalised(prompt)),
        f"def {name}({', '.join(names)}):\n    {body}",
        function=name,
        inputs=_inputs(task.argument, task.k, task.j),
    )


def _name(rng: Random, split: Split) -> str:
    if split == "train" and rng.random() < INVENTED_SHARE:
        return invented(rng) if rng.random() < 0.5 else f"{FUNCTION_NAMES.draw(rng, new=False)}_{invented(rng)}"
    return FUNCTION_NAMES.draw(rng, new=split == "phrasing")


def _argument_names(rng: Random, split: Split, kind: str) -> list[str]:
    names = NAMES[kind].draw(rng, new=split == "phrasing").split()
    if split == "train" and rng.random() < INVENTED_SHARE:
        return [invented(rng) + "xyz"[i] for i in range(len(names))]
    return names


def _one_recipe(rng: Random, split: Split) -> Task:
    recipe = rng.choice(RECIPES)
    small = recipe.argument.endswith("string") or recipe.name in ("first", "last")
    k, j = (rng.randint(2, 20 if small else 99) for _ in range(2))
    clause = recipe.says.draw(rng, split)
    if clause.startswith("? "):
        clause = CHECKS.draw(rng, split).format(clause[2:])
    elif clause.startswith("= "):
        clause = f"{RETURNS.draw(rng, split)} {clause[2:]}"
    return Task(recipe.name, (clause,), recipe.argument, recipe.body, k, j)


def _two_operations(rng: Random, split: Split) -> Task:
    first, second = rng.sample(OPERATIONS, 2)
    k, j = rng.randint(2, 99), rng.randint(2, 99)
    low = second.expression.startswith("{e} +") or second.expression.startswith("{e} -")
    inner = first.expression.replace("{e}", "{x}")
    body = "return " + second.expression.replace("{k}", "{j}").replace("{e}", inner if low else f"({inner})")
    clauses = (
        first.says.draw(rng, split).replace("{o}", "{x}"),
        second.says.draw(rng, split).replace("{k}", "{j}").replace("{o}", rng.choice(("the result", "it"))),
    )
    return Task(f"{first.name} {second.name}", clauses, "number", body, k, j)


EVALUATED = "\ndef evaluated(arguments):\n    return {}(*arguments)\n"
"""The sandbox calls a function with one argument; this one takes a tuple of them."""


def _inputs(argument: str, k: int, j: int) -> tuple[str, ...]:
    """Return calls that tell apart what may be mixed up: each is a tuple of arguments, as a Python literal."""
    values: list[Any]
    if argument == "number":
        values = [0, 1, k - 1, k, k + 1, 3 * k, 7 * k + 3, -k - 2, j]
    elif argument == "numbers":
        return tuple(repr(pair) for pair in ((3, 5), (5, 3), (4, 4), (0, -7), (-2, 9), (12, 12)))
    elif argument.endswith("list"):
        values = [[], [k], [k - 1, k, k + 1, k, 2 * k], [-3, 5 * k, 0, 3 * k], list(range(k + 5))]
    else:
        values = ["", "ab", "Abcde" * (k // 5) + "abcdefg"[: k % 5], "xYz" * k, "q" * (k + 1)]
    return tuple(repr((value,)) for value in values if value or not argument.startswith("filled"))


def expected(question: Question) -> list[str]:
    """Return the results of the reference answer, as Python literals. It is trusted, so it runs in this process."""
    scope: dict[str, Any] = {}
    exec(question.answer + EVALUATED.format(question.function), scope)
    return [repr(scope["evaluated"](literal_eval(arguments))) for arguments in question.inputs]


def verdict(question: Question, text: str) -> bool:
    """Whether the function, run in the sandbox, gives the reference's results on all inputs, including their types."""
    source = code_of(text) + EVALUATED.format(question.function)
    return run_function(source, "evaluated", question.inputs) == expected(question)


CODE = Family("code", draw, verdict)
