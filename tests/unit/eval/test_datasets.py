"""Public data sets: rows to chats, graders by hand-worked answers, code in the sandbox, and runs that go on."""

import json
from pathlib import Path
from typing import Any

import pytest

from simsd.cli import main as cli
from simsd.errors import ConfigError, RequestError
from simsd.eval import datasets
from simsd.eval.answer_log import AnswerLog
from simsd.eval.datasets import DATA_SETS, items, read_rows, recognise
from simsd.eval.graders import chosen_letter, code_of, final_number, names_alias, passes_tests, same_number
from simsd.eval.sandbox import run_program

GSM8K = [
    {"question": f"What is {i} + {i}?", "answer": f"{i}+{i}=<<{i}+{i}={2 * i}>>{2 * i}\n#### {2 * i}"} for i in range(9)
]
MBPP = [
    {
        "task_id": i,
        "text": f"Write a function f{i} that adds {i}.",
        "code": f"def f{i}(x):\r\n    return x + {i}",
        "test_setup_code": "",
        "test_list": [f"assert f{i}(1) == {i + 1}", f"assert f{i}(0) == {i}"],
    }
    for i in range(5)
]
TRIVIAQA = [
    {
        "question": "Which city is the capital of France?",
        "question_id": "tc_1",
        "answer": {"value": "Paris", "aliases": ["Paris", "City of Light"], "normalized_aliases": ["paris"]},
    }
]
MMLU = [
    {"question": f"Q{i}?", "subject": subject, "choices": ["w", "x", "y", "z"], "answer": i % 4}
    for subject in ("abstract_algebra", "law")
    for i in range(3)
]
ROWS: dict[str, list[dict[str, Any]]] = {"gsm8k": GSM8K, "mbpp": MBPP, "triviaqa": TRIVIAQA, "mmlu": MMLU}


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so 3 and 4\n#### 12", "12"),
        ("#### $1,234.50 in all", "1234.50"),
        ("It is -7.", "-7"),
        ("from 3 to 5 apples", "5"),
        ("#### none, but 8 before", "8"),
        ("4 #### x #### 9", "9"),
        ("nothing", None),
    ],
)
def test_the_final_number(text: str, number: str | None) -> None:
    found = final_number(text)
    assert (None if found is None else str(found)) == number


def test_numbers_are_compared_as_numbers() -> None:
    assert same_number("The answer is 18.00", "#### 18")
    assert same_number("1,000", "#### 1000")
    assert not same_number("180", "#### 18")
    assert not same_number("", "#### 18")


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("(C) because", "C"),
        ("The answer is D.", "D"),
        ("A guess would be wrong; the answer is (b)", "B"),
        ("Answer: C", "C"),
        ("**A**\nbecause B is not", "A"),
        ("A good question. Option C", "C"),
        ("It must be (A), not B", "A"),
        ("I think so", None),
        ("", None),
    ],
)
def test_the_letter(text: str, letter: str | None) -> None:
    assert chosen_letter(text) == letter


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Paris", True),
        ("It is the City of Light!", True),
        ("PARIS, France.", True),
        ("parisian", False),
        ("Lyon", False),
        ("", False),
    ],
)
def test_an_alias_as_whole_words(text: str, right: bool) -> None:
    assert names_alias(text, ["Paris", "The City of Light", "!"]) is right


def test_code_is_taken_out_of_its_fence() -> None:
    assert code_of("Sure:\n```python\nx = 1\n```\nDone") == "x = 1\n"
    assert code_of("```py\nx = 1") == "x = 1"
    assert code_of("[BEGIN]\nx = 1\n[DONE]\n[BEGIN]") == ""
    assert code_of("[BEGIN]\nx = 1\n[DONE] more") == "\nx = 1\n"
    assert code_of("x = 1") == "x = 1"


@pytest.mark.parametrize(
    ("source", "runs"),
    [
        ("import re, math, collections, heapq, itertools\nassert re.sub('a', 'b', 'aa') == 'bb'", True),
        ("from datetime import datetime\nassert datetime.strptime('2020', '%Y').year == 2020", True),
        ("import sys\nassert sys.maxsize > 0\nsys.setrecursionlimit(2000)", True),
        ("class A:\n    x: int = 1\nassert A().x", True),
        ("print('[\"passed\"]')\nassert False", False),
        ("assert 1 == 2", False),
        ("x = ", False),
        ("import os", False),
        ("import subprocess", False),
        ("import sys\nsys.modules", False),
        ("open('/etc/passwd')", False),
        ("__import__('os').getcwd()", False),
        ("import re\nre.enum.sys.modules['os'].listdir('/')", False),
        ("import re\nre.enum.sys.modules['os'].system('true')", False),
        ("import re\nre.enum.sys.modules['posix'].open('/etc/passwd', 0)", False),
        ("raise SystemExit(0)", False),
        ("while True:\n    pass", False),
        ("x = [0] * 10**9", False),
        ("def f():\n    f()\nf()", False),
    ],
)
def test_programs_in_the_sandbox(source: str, runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simsd.eval.sandbox.PROGRAM_CPU_LIMIT_S", 1)
    assert run_program(source) is runs


def test_tests_are_run_after_the_answer() -> None:
    tests = ["assert f(1) == 2", "assert f(0) == 1"]
    assert passes_tests("```python\ndef f(x):\n    return x + 1\n```", "", tests)
    assert not passes_tests("def f(x):\n    return 2", "", tests)
    assert passes_tests("def f(x):\n    return x + y", "y = 1", tests)


@pytest.mark.parametrize("name", list(DATA_SETS))
def test_a_sets_own_answers_are_right_and_nothing_is_not(name: str) -> None:
    for row in ROWS[name]:
        example = DATA_SETS[name].read(row)
        assert example.check(example.answer)
        assert not example.check("")
        assert recognise(row) is DATA_SETS[name]
    assert recognise({"prompt": "x"}) is None


def test_examples_come_before_the_question_and_are_not_asked() -> None:
    found = items(DATA_SETS["gsm8k"], GSM8K, n=3)
    assert [item.key for item in found] == ["gsm8k/4", "gsm8k/5", "gsm8k/6"]
    messages = found[0].messages
    assert [m["role"] for m in messages] == ["user", "assistant"] * 4 + ["user"]
    assert messages[3]["content"] == "1+1=2\n#### 2"
    assert messages[-1]["content"] == "What is 4 + 4?"
    assert found[0].grade is not None
    assert found[0].grade("#### 8") == [True]


def test_examples_from_a_file_of_their_own_leave_all_questions() -> None:
    found = items(DATA_SETS["mbpp"], MBPP[:2], n=9, shot_rows=MBPP[2:])
    assert [item.key for item in found] == ["mbpp/0", "mbpp/1"]
    assert found[0].messages[1]["content"] == "```python\ndef f2(x):\n    return x + 2\n```"
    assert "\r" not in found[0].messages[1]["content"]


def test_mmlu_shows_examples_of_the_subject() -> None:
    found = items(DATA_SETS["mmlu"], MMLU, n=9, shots=2)
    assert [item.key for item in found] == ["mmlu/2", "mmlu/5"]
    for item, subject in zip(found, ("abstract algebra", "law"), strict=True):
        assert all(subject in m["content"] for m in item.messages if m["role"] == "user")
        assert [m["content"] for m in item.messages if m["role"] == "assistant"] == ["A", "B"]
    assert items(DATA_SETS["triviaqa"], TRIVIAQA, n=1)[0].messages[0]["role"] == "user"


def test_what_is_missing_is_named() -> None:
    with pytest.raises(RequestError, match="fewer than 5 examples about 'abstract_algebra'"):
        items(DATA_SETS["mmlu"], MMLU, n=1, shot_rows=MMLU[:2])
    with pytest.raises(RequestError, match="no question is left"):
        items(DATA_SETS["gsm8k"], GSM8K[:4], n=1)
    with pytest.raises(RequestError, match=r"mbpp, row 0: no 'test_list'; is this the right file\?"):
        items(DATA_SETS["mbpp"], [{"text": "x"}], n=1)


def test_files_are_jsonl_json_or_parquet(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(MMLU), tmp_path / "a.parquet")
    (tmp_path / "a.json").write_text(json.dumps(MMLU))
    for path in (tmp_path / "a.parquet", tmp_path / "a.json", jsonl(tmp_path / "a.jsonl", MMLU)):
        assert read_rows(path) == MMLU
    (tmp_path / "a.csv").write_text("x")
    (tmp_path / "b.jsonl").write_text("{}\n\n[]\n")
    (tmp_path / "b.json").write_text("{}")
    for name, says in (("a.csv", "read from .jsonl"), ("b.jsonl", "line 3: must be an object"), ("b.json", "a list")):
        with pytest.raises(RequestError, match=says):
            read_rows(tmp_path / name)


def test_a_set_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", unreachable)
    with pytest.raises(ConfigError, match="cais/mmlu cannot be fetched: no network; name a file: --data NAME=FILE"):
        datasets.fetch("cais/mmlu", "all/test.parquet")


def test_a_log_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    log = AnswerLog(path, {"method": "simsd", "stop": ("x",)})
    log.add("gsm8k/0", "Zwölf\n#### 12", {"rounds": 3})
    with path.open("a") as file:
        file.write('{"key": "gsm8k/1", "te')  # killed while it wrote
    again = AnswerLog(path, {"method": "simsd", "stop": ("x",)})
    assert list(again.done) == ["gsm8k/0"]
    again.add("gsm8k/1", "8", {})
    assert [json.loads(line).get("key") for line in path.read_text().splitlines()] == [None, "gsm8k/0", "gsm8k/1"]
    assert AnswerLog(path, {"method": "simsd", "stop": ("x",)}).done["gsm8k/0"]["text"] == "Zwölf\n#### 12"
    with pytest.raises(RequestError, match="has answers with method 'simsd', this run has 'exact'"):
        AnswerLog(path, {"method": "exact", "stop": ("x",)})
    for content in ("[1]\n", "no JSON\n"):
        (tmp_path / "other.jsonl").write_text(content)
        with pytest.raises(RequestError, match="not a file of answers"):
            AnswerLog(tmp_path / "other.jsonl", {})


def run_eval(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert cli.main(["eval", "--json", "--threads", "1", *argv]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_run_asks_only_what_is_left(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = jsonl(tmp_path / "sums.jsonl", GSM8K)
    out = tmp_path / "answers.jsonl"
    argv = ["--data", f"gsm8k={data}", "--shots", "1", "--max-tokens", "12", "--out", str(out)]
    first = run_eval(capsys, *argv, "--n", "2")
    lines = out.read_text().splitlines()
    more = run_eval(capsys, *argv, "--n", "3")
    grown = out.read_text().splitlines()
    assert (len(lines), len(grown)) == (3, 4)
    assert grown[:3] == lines
    assert first["families"]["gsm8k"]["n"] == 2
    assert more["families"]["gsm8k"]["n"] == 3
    assert more["rounds"] > first["rounds"]
    told = [json.loads(line)["text"] for line in grown[1:]]
    right = sum(DATA_SETS["gsm8k"].read(GSM8K[i]).check(text) for i, text in enumerate(told, start=1))
    assert more["families"]["gsm8k"]["correct"] == right
    assert run_eval(capsys, *argv, "--n", "3") | {"seconds": 0} == more | {"seconds": 0}
    assert cli.main(["eval", *argv, "--method", "exact"]) == 2
    assert "method 'simsd', this run has 'exact'" in capsys.readouterr().err


def test_families_and_sets_in_one_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = jsonl(tmp_path / "trivia.jsonl", TRIVIAQA)
    report = run_eval(capsys, "--data", f"triviaqa={data}", "--families", "trivia", "--n", "1")
    assert list(report["families"]) == ["trivia", "triviaqa"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--data", "squad=x.jsonl"], "--data takes each of gsm8k, mbpp, triviaqa, mmlu once; got 'squad=x.jsonl'"),
        (["--data", "gsm8k=a", "--data", "gsm8k=b"], "once; got 'gsm8k=b'"),
        (["--shots-data", "gsm8k=a"], "--shots-data gsm8k: there is no --data gsm8k"),
        (["--data", "gsm8k=a", "--shots", "-1"], "--shots must be at least 0"),
    ],
)
def test_bad_arguments(capsys: pytest.CaptureFixture[str], argv: list[str], says: str) -> None:
    assert cli.main(["eval", *argv]) == 2
    assert says in capsys.readouterr().err


def test_a_question_that_does_not_fit_is_named_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = [*GSM8K[:2], GSM8K[2] | {"question": "long " * 3000}]
    data = jsonl(tmp_path / "long.jsonl", rows)
    assert cli.main(["eval", "--data", f"gsm8k={data}", "--shots", "0", "--n", "3"]) == 2
    assert "gsm8k/2: " in capsys.readouterr().err
