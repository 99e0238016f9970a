"""Questions of public data sets (GSM8K, MBPP, TriviaQA, MMLU), from files in the hub's formats or from the hub.

Few-shot examples are turns of the chat before the question; by default there are as many as in the paper (section 4).
They come from the set's own split for examples. If only one file is given, its first questions are the examples, and
are not asked.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from simsd.errors import ConfigError, RequestError
from simsd.eval.families import FAMILIES, Question
from simsd.eval.graders import chosen_letter, names_alias, passes_tests, same_number
from simsd.eval.score import FamilyScore, family_score

Row = dict[str, Any]
Message = dict[str, str]
LETTERS = "ABCD"


@dataclass(frozen=True)
class Example:
    """A row of a data set as a question.

    group: questions of one group share few-shot examples. answer: the answer that a few-shot example shows. check:
    whether a text is a right answer.
    """

    group: str
    prompt: str
    answer: str
    check: Callable[[str], bool]

    def grade(self, text: str) -> list[bool]:
        return [self.check(text)]


@dataclass(frozen=True)
class Item:
    """A question to ask.

    key: its name, which stays the same from run to run. grade: tells for each part of an answer whether it is right;
    None if that is not known. tools: the tools of the request, in OpenAI's form.
    """

    source: str
    key: str
    messages: list[Message]
    grade: Callable[[str], list[bool]] | None
    tools: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class DataSet:
    """A data set.

    shots: the number of few-shot examples. max_tokens: the longest answer. mark: a column by which its rows are
    recognised. read: makes an `Example` of a row. repo, test, shots_file: the hub's data set, and its files with the
    questions and the examples.
    """

    name: str
    shots: int
    max_tokens: int
    mark: str
    read: Callable[[Row], Example]
    repo: str
    test: str
    shots_file: str | None = None


def _gsm8k(row: Row) -> Example:
    answer = str(row["answer"])
    shown = re.sub(r"<<.*?>>", "", answer)  # The set has calculator annotations.
    return Example("", str(row["question"]), shown, partial(same_number, reference=answer))


def _mbpp(row: Row) -> Example:
    task = row["text"] if "text" in row else row["prompt"]  # The sanitized version has "prompt".
    tests = [str(test) for test in row["test_list"]]
    setup = str(row.get("test_setup_code") or "\n".join(row.get("test_imports") or ()))
    prompt = (
        f"You are an expert Python programmer, and here is your task: {task} Your code should pass these tests:\n\n"
    )
    code = str(row["code"]).replace("\r\n", "\n").strip()
    check = partial(passes_tests, setup=setup, tests=tests)
    return Example("", prompt, f"```python\n{code}\n```", check)


def _triviaqa(row: Row) -> Example:
    answer = row["answer"]
    aliases = [answer["value"], *answer["aliases"], *(answer.get("normalized_aliases") or ())]
    prompt = f"{row['question']}\nAnswer with a few words."
    return Example("", prompt, answer["value"], partial(names_alias, aliases=aliases))


def _mmlu(row: Row) -> Example:
    subject, right = str(row["subject"]), LETTERS[int(row["answer"])]
    lines = [f"{letter}. {text}" for letter, text in zip(LETTERS, row["choices"], strict=True)]
    topic = subject.replace("_", " ")
    prompt = f"A multiple choice question about {topic}.\n{row['question']}\n" + "\n".join(lines)
    prompt += "\nAnswer with the letter."
    return Example(subject, prompt, right, lambda text: chosen_letter(text) == right)


DATA_SETS = {
    found.name: found
    for found in (
        DataSet(
            "gsm8k", 4, 512, "question", _gsm8k,
            "openai/gsm8k", "main/test-00000-of-00001.parquet", "main/train-00000-of-00001.parquet",
        ),
        DataSet(
            "mbpp", 3, 512, "test_list", _mbpp,
            "google-research-datasets/mbpp", "full/test-00000-of-00001.parquet", "full/prompt-00000-of-00001.parquet",
        ),
        DataSet(
            "triviaqa", 0, 64, "question_id", _triviaqa,
            "mandarjoshi/trivia_qa", "rc.nocontext/validation-00000-of-00001.parquet",
        ),
        DataSet(
            "mmlu", 5, 16, "choices", _mmlu,
            "cais/mmlu", "all/test-00000-of-00001.parquet", "all/dev-00000-of-00001.parquet",
        ),
    )
}  # fmt: skip
"""The four data sets of the paper, with its numbers of few-shot examples (section 4)."""


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a .parquet, .jsonl or .json file; a .json file holds a list of objects.

    `RequestError` names a line that is not a row, and `ConfigError` says if pyarrow is missing.
    """
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet
        except ImportError as error:
            raise ConfigError(f"{path}: reading parquet needs pyarrow: pip install 'simsd-serve[eval]'") from error
        rows: list[Row] = pyarrow.parquet.read_table(path).to_pylist()
        return rows
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        parsed = json.loads(text)
        if not isinstance(parsed, list) or not all(isinstance(row, dict) for row in parsed):
            raise RequestError(f"{path}: must hold a list of objects")
        return parsed
    if path.suffix != ".jsonl":
        raise RequestError(f"{path}: data are read from .jsonl, .json and .parquet files")
    return list(_lines(path, text))


def _lines(path: Path, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise RequestError(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise RequestError(f"{path}, line {number}: must be an object")
        yield row


def recognise(row: Row) -> DataSet | None:
    """Return the data set to which a row belongs, by its columns; None if it is unknown."""
    marked = [found for found in DATA_SETS.values() if found.mark in row and found.name != "gsm8k"]
    if marked:
        return marked[0]
    return DATA_SETS["gsm8k"] if "####" in str(row.get("answer")) and "question" in row else None


def fetch(repo: str, file: str) -> Path:
    """Fetch a file of a data set from the hub, once; then it is cached. `ConfigError` says what to do if that fails."""
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repo, file, repo_type="dataset"))
    except Exception as error:  # The hub's client may raise anything, and the user must know what was tried.
        summary = (str(error).strip().splitlines() or [type(error).__name__])[0]
        message = f"{file} of the hub's data set {repo} cannot be fetched: {summary}; name a file: --data NAME=FILE"
        raise ConfigError(message) from error


def items(
    found: DataSet, rows: list[Row], n: int, shots: int | None = None, shot_rows: list[Row] | None = None
) -> list[Item]:
    """Return the first `n` questions, each after `shots` examples (None: the paper's number).

    The examples come from `shot_rows`, or from `rows` themselves if that is None. `RequestError` names a row that lacks
    something, or says that there are too few examples.
    """
    shots = found.shots if shots is None else shots
    examples = list(_examples(found, rows))
    shown: dict[str, list[Example]] = {}
    taken: set[int] = set()
    source = examples if shot_rows is None else list(_examples(found, shot_rows))
    for index, example in enumerate(source):
        turns = shown.setdefault(example.group, [])
        if len(turns) < shots:
            turns.append(example)
            taken |= {index} if shot_rows is None else set()
    asked = [(i, example) for i, example in enumerate(examples) if i not in taken][:n]
    for _, example in asked:
        if len(shown.get(example.group, [])) < shots:
            group = f" about {example.group!r}" if example.group else ""
            raise RequestError(f"{found.name}: fewer than {shots} examples{group} to show; see --shots", "shots")
    if not asked:
        raise RequestError(f"{found.name}: no question is left to ask behind {shots} examples", "n")
    return [
        Item(found.name, f"{found.name}/{i}", _chat(shown.get(example.group, [])[:shots], example), example.grade)
        for i, example in asked
    ]


def family_item(question: Question, index: int) -> Item:
    """Return a question of one of the families as an item. `index` makes its key unique."""
    messages = [{"role": "user", "content": question.prompt}]
    grade = partial(FAMILIES[question.family].grade, question)
    tools = json.loads(question.tools) if question.tools else []
    return Item(question.family, f"{question.family}/{index}", messages, grade, tools)


def item_scores(items: Sequence[Item], texts: Sequence[str]) -> dict[str, FamilyScore]:
    """Grade each item's text, and return the score of each source. All items must have a grader."""
    verdicts: dict[str, list[bool]] = {}
    for item, text in zip(items, texts, strict=True):
        assert item.grade is not None
        verdicts.setdefault(item.source, []).extend(item.grade(text))
    return {name: family_score(sum(found), len(found)) for name, found in verdicts.items()}


def _examples(found: DataSet, rows: list[Row]) -> Iterator[Example]:
    for index, row in enumerate(rows):
        try:
            yield found.read(row)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise RequestError(f"{found.name}, row {index}: {what}; is this the right file?", "data") from error


def _chat(shown: list[Example], asked: Example) -> list[Message]:
    turns = [(example.prompt, example.answer) for example in shown]
    messages = [
        {"role": role, "content": text}
        for turn in turns
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    return [*messages, {"role": "user", "content": asked.prompt}]
