"""A sentence to a small JSON object with given keys, and a request to the call of a given tool as JSON.

Held-out questions have names, cities, objects and numbers that training never sees; the phrasing split has new
sentences, keys and orders with them.
"""

import json
import re
from collections.abc import Sequence
from random import Random
from string import Formatter
from typing import Any

from simsd.eval.families.parts import capitalised, expand, invented, joined, plural, wording
from simsd.eval.families.people import draw_name
from simsd.eval.families.records_domains import DOMAINS, KEYS, NUMBERS
from simsd.eval.families.words import ANIMALS, CITIES, COLORS, DAYS, FRUIT, JOBS, THINGS
from simsd.eval.question import Family, Question, Split

Value = str | int

OBJECT_LAYOUTS = wording("""
    {sentence} [Give|Write|Return|Extract] {keys} as JSON.
    {sentence} Answer with JSON. Keys: {keys}.
    {sentence} Make a JSON object with {keys}.
    {sentence} As JSON with the keys {keys}, please.
    [Extract|Give me|Find|Write] {keys} as JSON: {sentence}
    [Return|Write|Make|Give me] JSON with the keys {keys}: {sentence}
    Turn this into JSON with {keys}: {sentence}
    Read this: {sentence} [Give|Write|Return] {keys} as JSON.
    JSON with {keys}: {sentence}
    Keys: {keys}. Text: {sentence} [Answer in JSON.|Give JSON.|JSON?]
    Can you extract {keys} as JSON? {sentence}
    What are {keys} here, as JSON? {sentence}
    --
    Fill in a form in JSON, its fields are {keys}. {sentence}
    I only need {keys}, in JSON format. {sentence}
    {sentence} Put that into a JSON record of {keys}.
    Here is a text: {sentence} Which JSON object describes it with {keys}?
""")
TOOL_LAYOUTS = wording("""
    Tool: {tool}\\n{request}
    Tools: {tool}\\n{request}
    You have this tool: {tool}\\n{request}
    Use the tool {tool}\\n{request}
    {request}\\nTool: {tool}
    {request} Use this tool: {tool}
    Call a tool. {tool}\\n{request}
    --
    With the function {tool} do this: {request}
    {request} Answer by a call of {tool}
    Available function: {tool}\\nRequest: {request}
""")
STRANGE_SHARE = 0.3
"""The share of training's questions with keys that mean nothing."""
INVENTED_SHARE = 0.3
"""The share of values in words that are invented in training."""
TEMPLATE_SHARE = 0.5
"""The share of tool calls whose tool is given in the chat template's own way, and not in the prompt."""
CALL = re.compile(r"<tool_call>\n(.*)\n</tool_call>", re.DOTALL)
POOLS = {"city": CITIES, "start": CITIES, "goal": CITIES, "color": COLORS, "job": JOBS, "animal": ANIMALS, "day": DAYS}


def draw(rng: Random, split: Split) -> Question:
    return (_object if rng.random() < 0.6 else _tool_call)(rng, split)


def fields_of(template: str) -> list[str]:
    """Return the fields of a sentence, in its order."""
    return [name for _, name, _, _ in Formatter().parse(template) if name]


def number_held_out(n: int) -> bool:
    """Whether training never has this number as a value. One in eight is held out, of small ranges too."""
    return n % 8 == 4


def _object(rng: Random, split: Split) -> Question:
    new = _new_parts(rng) if split == "phrasing" else set()
    sentence = rng.choice(DOMAINS).sentences.draw(rng, "phrasing" if "sentence" in new else "train")
    values = _values(rng, split, fields_of(sentence))
    strange = "keys" in new or _strange(rng, split)
    asked = list(values)
    if not strange:
        asked = rng.sample(asked, rng.randint(2, len(values)) if len(values) > 2 else 2)
    if rng.random() < 0.6 and not strange:
        asked = [field for field in values if field in asked]
    keys = _keys(rng, "phrasing" if "keys" in new else "train", asked, strange)
    quoted = [f'"{key}"' for key in keys] if rng.random() < 0.25 else keys
    listed = joined(quoted, "and") if rng.random() < 0.5 else ", ".join(quoted)
    layout = OBJECT_LAYOUTS.draw(rng, "phrasing" if "layout" in new else "train")
    prompt = layout.format(sentence=_said(sentence, values), keys=listed)
    answer = {key: values[field] for key, field in zip(keys, asked, strict=True)}
    return Question("records", capitalised(prompt), json.dumps(answer))


def _tool_call(rng: Random, split: Split) -> Question:
    new = _new_parts(rng) if split == "phrasing" else set()
    domain = rng.choice(DOMAINS)
    request = domain.requests.draw(rng, "phrasing" if "sentence" in new else "train")
    values = _values(rng, split, fields_of(request))
    key_split: Split = "phrasing" if "keys" in new else "train"
    strange = _strange(rng, split)
    keys = _keys(rng, key_split, list(values), strange)
    name = domain.tool.draw(rng, key_split)
    if strange:
        name = rng.choice((invented(rng), f"{name.split('_')[0]}_{invented(rng)}"))
    types = {key: "integer" if field in NUMBERS else "string" for key, field in zip(keys, values, strict=True)}
    tool = json.dumps({"name": name, "arguments": types})
    call = json.dumps({"name": name, "arguments": dict(zip(keys, values.values(), strict=True))})
    if rng.random() < TEMPLATE_SHARE and new != {"layout"}:
        properties = {key: {"type": kind} for key, kind in types.items()}
        function = {"name": name, "parameters": {"type": "object", "properties": properties, "required": keys}}
        tools = json.dumps([{"type": "function", "function": function}])
        return Question(
            "records", capitalised(_said(request, values)), f"<tool_call>\n{call}\n</tool_call>", tools=tools
        )
    layout = TOOL_LAYOUTS.draw(rng, "phrasing" if "layout" in new else "train")
    prompt = layout.replace("\\n", "\n").format(tool=tool, request=_said(request, values))
    return Question("records", prompt, call)


def _new_parts(rng: Random) -> set[str]:
    """Choose what is new in a question of the phrasing split, beside its names and objects: one or two of the parts."""
    return set(rng.sample(("sentence", "keys", "layout"), rng.randint(1, 2)))


def _strange(rng: Random, split: Split) -> bool:
    """Choose whether a question of training has keys that mean nothing.

    What such a key stands for is told by its place alone, as it is for a key that training has never seen. So all
    fields are asked for, in the order of the sentence.
    """
    return split == "train" and rng.random() < STRANGE_SHARE


def _keys(rng: Random, split: Split, fields: Sequence[str], strange: bool) -> list[str]:
    """Draw a key for each field. In the phrasing split all are new; with `strange`, most are invented in training."""
    keys = [expand(rng, KEYS[field].template(rng, split)) for field in fields]
    if strange and split == "train":
        keys = [key if rng.random() < 0.3 else _strange_key(rng) + "abcdefg"[i] for i, key in enumerate(keys)]
    return keys


def _strange_key(rng: Random) -> str:
    return invented(rng) if rng.random() < 0.7 else f"{invented(rng)}_{invented(rng)}"


def _values(rng: Random, split: Split, fields: Sequence[str]) -> dict[str, Value]:
    """Draw values. Outside training they are words that training never sees, and numbers that it never sees there."""
    values: dict[str, Value] = {}
    for field in fields:
        while field not in values or list(values.values()).count(values[field]) > 1:
            values[field] = _value(rng, split, field)
    return values


def _value(rng: Random, split: Split, field: str) -> Value:
    new = split != "train"
    if field in NUMBERS:
        low, high = NUMBERS[field]
        return rng.choice([n for n in range(low, high + 1) if number_held_out(n) == new])
    if field in ("name", "other") and not new and rng.random() < INVENTED_SHARE:
        return capitalised(invented(rng))
    if field in ("name", "other"):
        return draw_name(rng, "phrasing" if new else "train").name
    if not new and field in ("item", "city", "job", "animal") and rng.random() < INVENTED_SHARE:
        return capitalised(invented(rng)) if field == "city" else invented(rng)
    if field == "item":
        return plural(rng.choice((THINGS, THINGS, FRUIT)).draw(rng, new))
    return POOLS[field].draw(rng, new)


def _said(template: str, values: dict[str, Value]) -> str:
    return capitalised(template.format(**values))


def verdict(question: Question, text: str) -> bool:
    """Whether the text is JSON that equals the answer's, including types, in any order of keys.

    A call of a tool that the template gives stands in the template's marks.
    """
    found = CALL.fullmatch(text) if question.tools else re.fullmatch("(?s)(.*)", text)
    try:
        return found is not None and _canonical(json.loads(found[1])) == _canonical(answer_of(question))
    except (ValueError, RecursionError):
        return False


def answer_of(question: Question) -> Any:
    """Return the taught object or call."""
    return json.loads(question.answer.removeprefix("<tool_call>").removesuffix("</tool_call>"))


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


RECORDS = Family("records", draw, verdict)
