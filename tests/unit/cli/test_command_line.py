"""The command line as a script sees it: what comes out, in which order, under which names, and how errors look."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simsd.cli import main as cli
from simsd.cli import options
from simsd.cli.report import table, total
from simsd.messages.request import DecodeParams, Stats
from simsd.models.files import resolve_model
from simsd.tokens.tokenizer import Tokenizer

RESULT_KEYS = (
    "prompt text token_ids finish_reason prompt_tokens completion_tokens rounds target_forwards draft_forwards drafted "
    "accepted recovered bonus fallback_tokens prefill_s decode_s accept_histogram"
).split()
QUESTION = "What is the capital of France?"


def simsd(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    try:
        code = cli.main(list(argv))
    except SystemExit as stop:
        code = int(stop.code or 0)
    out = capsys.readouterr()
    return code, out.out, out.err


def answers(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    code, out, err = simsd(capsys, "generate", "--json", "--threads", "1", *argv)
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def prompts_file(tmp_path: Path, *records: object) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records) + "\n", encoding="utf-8")
    return str(path)


def test_one_answer_with_stats(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = simsd(capsys, "generate", QUESTION, "--method", "simsd", "--stats", "--threads", "1")
    assert (code, err) == (0, "")
    assert "Paris" in out.splitlines()[0]
    for line in ("rounds ", "target forwards ", "draft forwards ", "acceptance rate ", "accept histogram "):
        assert line in out


@pytest.mark.parametrize("method", ["vanilla", "simsd", "exact"])
def test_an_answer_as_json(capsys: pytest.CaptureFixture[str], method: str) -> None:
    (answer,) = answers(capsys, QUESTION, "--method", method)
    tokenizer = Tokenizer.load(resolve_model("shipped", "target"))
    assert list(answer) == RESULT_KEYS
    assert answer["prompt"] == QUESTION
    assert "Paris" in answer["text"]
    assert answer["text"] == tokenizer.decode(answer["token_ids"])
    assert answer["completion_tokens"] == len(answer["token_ids"])
    assert answer["prompt_tokens"] == len(tokenizer.encode_messages([{"role": "user", "content": QUESTION}]))
    assert answer["finish_reason"] == "stop"
    assert (answer["draft_forwards"] > 0) == (method != "vanilla")
    assert sum(int(k) * v for k, v in answer["accept_histogram"].items()) == answer["accepted"]


def test_a_file_of_prompts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chat = [{"role": "user", "content": QUESTION}]
    path = prompts_file(
        tmp_path,
        {"prompt": "What is 3 + 4?", "method": "vanilla", "max_tokens": 3},
        "",
        {"messages": chat, "method": "exact", "temperature": 1, "seed": 5},
        {"prompt": QUESTION, "stop": "Par"},
        {"prompt": QUESTION, "stop": ["Fra", "Par"]},
        {"prompt": QUESTION},
    )
    short, chatted, before_paris, before_either, plain = answers(capsys, "--prompts", path, "--max-tokens", "40")
    assert (short["finish_reason"], len(short["token_ids"]), short["draft_forwards"]) == ("length", 3, 0)
    assert chatted["prompt"] == Tokenizer.load(resolve_model("shipped", "target")).render(chat)
    assert "Paris" in plain["text"]
    assert before_paris["text"] == plain["text"].split("Par")[0]
    assert before_either["text"] == re.split("Fra|Par", plain["text"])[0]
    assert [a["prompt"] for a in (before_paris, before_either, plain)] == [QUESTION] * 3


def test_answers_do_not_depend_on_the_batch(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    records = [{"prompt": f"What is {a} + {a + 2}?", "seed": a, "temperature": a % 2} for a in range(6)]
    path = prompts_file(tmp_path, *records)
    alone, together = (answers(capsys, "--prompts", path, "--batch", n, "--max-tokens", "24") for n in ("1", "4"))
    assert [a["prompt"] for a in together] == [r["prompt"] for r in records]
    assert [a["token_ids"] for a in together] == [a["token_ids"] for a in alone]


def test_raw_prompts_have_no_template(capsys: pytest.CaptureFixture[str]) -> None:
    (answer,) = answers(capsys, "The capital of", "--raw", "--max-tokens", "4")
    tokenizer = Tokenizer.load(resolve_model("shipped", "target"))
    assert answer["prompt_tokens"] == len(tokenizer.encode("The capital of"))


def test_both_models_take_the_block_size(capsys: pytest.CaptureFixture[str]) -> None:
    (answer,) = answers(capsys, QUESTION, "--block-size", "8", "--gamma", "7")
    assert "Paris" in answer["text"]


def test_stats_leave_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = simsd(capsys, "generate", QUESTION, "--json", "--stats", "--threads", "1")
    assert code == 0
    assert list(json.loads(out)) == RESULT_KEYS
    assert "acceptance rate" in err


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"prompt": "x", "temprature": 1}, "line 2: unknown key 'temprature'; did you mean 'temperature'?"),
        ({"prompt": "x", "messages": []}, 'line 2: must be an object with either "prompt" or "messages"'),
        ({"seed": 1}, 'line 2: must be an object with either "prompt" or "messages"'),
        ({"prompt": 3}, "line 2: prompt must be a string"),
        ({"prompt": None}, "line 2: prompt must be a string"),
        ({"messages": "x"}, "line 2: messages must be a list of objects"),
        ({"messages": [{"role": "pope", "content": "x"}]}, "line 2: messages[0].role must be one of"),
        ({"prompt": "x", "temperature": "hot"}, "line 2: temperature: "),
        ({"prompt": "x", "max_tokens": 1.5}, "line 2: max_tokens: "),
        ({"prompt": "x", "temperature": -1}, "line 2: temperature must be between 0 and 100"),
        ({"prompt": "x", "method": "magic"}, "line 2: method"),
        ({"prompt": "x", "gamma": 99}, "line 2: gamma must be between 1 and 4"),
        (
            {"prompt": "x", "drafter": "self", "fallback": "target"},
            "line 2: fallback must be redraft with drafter self",
        ),
        ({"prompt": "x", "max_tokens": 99999}, "line 2: 9 prompt tokens and max_tokens 99999 exceed the context"),
        ({"prompt": ""}, "line 2: prompt must not be empty"),
        ({"prompt": "a <|mask|>"}, "line 2: messages contains the mask token"),
        ("{", "line 2: not JSON"),
        ("[]", "line 2: must be an object"),
    ],
)
def test_a_bad_line_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path, record: object, says: str) -> None:
    path = prompts_file(tmp_path, {"prompt": "fine"}, record)
    code, out, err = simsd(capsys, "generate", "--prompts", path, "--json", "--threads", "1")
    assert (code, out) == (2, "")
    assert err.startswith(f"simsd generate: error: {path}, {says}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "expected", "says"),
    [
        (["generate"], 2, "either a prompt or --prompts"),
        (["generate", "x", "--prompts", "y"], 2, "either a prompt or --prompts"),
        (["generate", "x", "--method", "magic"], 2, "--method"),
        (["generate", "x", "--temperature", "hot"], 2, "--temperature"),
        (["generate", "x", "--top-p", "0"], 2, "top_p must be above 0"),
        (["generate", "x", "--gamma", "5"], 2, "gamma must be between 1 and 4"),
        (
            ["generate", "x", "--drafter", "self", "--fallback", "target"],
            2,
            "fallback must be redraft with drafter self",
        ),
        (["generate", "x", "--block-size", "100"], 2, "block_size"),
        (["generate", "x", "--batch", "0"], 2, "max_running"),
        (["generate", "x", "--max-tokens", "100000"], 2, "context"),
        (["generate", "x", "--dtype", "float16", "--device", "cpu"], 2, "float16"),
        (["generate", "x", "--target", "no-such-model"], 1, "no directory no-such-model"),
        (["generate", "--prompts", "no-such-file"], 1, "no-such-file"),
        (["models", "no-such-model"], 1, "no directory no-such-model"),
        (["eval", "--families", "math,poetry"], 2, "math, code, trivia, choice"),
        (["eval", "--n", "0"], 2, "--n must be at least 1"),
        (["magic"], 2, "magic"),
        ([], 2, "COMMAND"),
    ],
)
def test_errors_are_one_line_and_a_code(
    capsys: pytest.CaptureFixture[str], argv: list[str], expected: int, says: str
) -> None:
    code, _, err = simsd(capsys, *argv)
    assert code == expected
    assert says in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = simsd(capsys, "models", "no-such-model", "--debug")
    assert code == 1
    assert "Traceback" in err


def test_an_empty_file_has_no_prompts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = simsd(capsys, "generate", "--prompts", prompts_file(tmp_path, ""))
    assert code == 2
    assert "no prompts" in err


def test_every_command_has_help_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    _, modules = cli.build_parser()
    assert {"generate", "eval", "models"} <= modules.keys()
    for command in modules:
        code, out, _ = simsd(capsys, command, "--help")
        assert code == 0
        assert f"simsd {command}" in out.split("examples:")[1]


def test_commands_without_a_module_are_not_offered(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "COMMANDS", ("models", "not_there"))
    _, modules = cli.build_parser()
    assert list(modules) == ["models"]


def test_a_preset_and_what_is_given_beside_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A line of the file goes before the command line, with its own preset too."""
    lines = [{}, {"preset": "baseline"}, {"gamma": 2}, {"drafter": "self"}]
    path = prompts_file(tmp_path, *({"prompt": "What is the capital of France?"} | line for line in lines))
    paper, plain, short, own = answers(capsys, "--prompts", path, "--preset", "paper")
    assert paper["drafted"] > 0
    assert paper["bonus"] == short["bonus"] == 0
    assert max(map(int, paper["accept_histogram"])) == 4
    assert max(map(int, short["accept_histogram"])) == 2
    assert plain["drafted"] == 0
    assert own["drafted"] > own["draft_forwards"] == 0
    code, _, err = simsd(capsys, "generate", "x", "--preset", "quick")
    assert code == 2
    assert "paper" in err


def test_every_decode_parameter_is_an_option() -> None:
    parser = cli.Parser()
    options.add_decode_options(parser)
    assert options.decode_options(parser.parse_args([])) == {}
    given = "--stop a --stop b --ignore-eos --top-k 3 --temperature 0.5 --draft-top-k 8".split()
    params = DecodeParams(**options.decode_options(parser.parse_args(given)))
    expected = DecodeParams(stop=("a", "b"), ignore_eos=True, top_k=3, temperature=0.5, draft_top_k=8)
    assert params == expected


def test_the_shipped_pair_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = simsd(capsys, "models", "--json")
    target, draft = map(json.loads, out.splitlines())
    assert code == 0
    assert (target["model"], draft["model"]) == ("shipped target", "shipped draft")
    assert target["block_size"] == draft["block_size"] == 4
    assert target["parameters"] > 2 * draft["parameters"]
    assert target["weights_bytes"] + draft["weights_bytes"] < 15e6
    code, out, _ = simsd(capsys, "models")
    assert code == 0
    assert "block_size       4" in out


def test_a_conversation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns by lines; a line that is refused leaves the conversation as it was; the model sees what was said before."""
    lines = ["What is 3 + 4?", "", "<|mask|>", QUESTION, "/clear", QUESTION, "/exit", "never asked"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    code, out, err = simsd(capsys, "chat", "--threads", "1", "--max-tokens", "24", "--stats")
    assert code == 0
    assert out.rstrip().splitlines()[-1] == "The capital of France is Paris."
    assert err.count("acceptance") == 3
    assert err.count("simsd chat: messages contains the mask token") == 1
    monkeypatch.setattr("sys.stdin", io.StringIO(QUESTION))
    again = simsd(capsys, "chat", "--threads", "1", "--max-tokens", "24")
    assert again == (0, "The capital of France is Paris.\n", "")


def test_a_chat_needs_its_server(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(QUESTION))
    code, _, err = simsd(capsys, "chat", "--url", "http://127.0.0.1:9")
    assert code == 1
    assert err.startswith("simsd chat: error: http://127.0.0.1:9/v1/chat/completions: ")


def test_evaluation_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["eval", "--families", "trivia,math", "--n", "4", "--json", "--threads", "1", "--method", "vanilla"]
    code, out, err = simsd(capsys, *argv)
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert sorted(report["families"]) == ["math", "trivia"]
    for facts in report["families"].values():
        assert facts["n"] == 4
        assert facts["accuracy"] == facts["correct"] / 4
        assert 0 <= facts["low"] <= facts["accuracy"] + 1e-9
        assert facts["accuracy"] - 1e-9 <= facts["high"] <= 1
    assert report["draft_forwards"] == 0
    assert report["tokens_per_s"] > 0


def test_evaluation_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = simsd(capsys, "eval", "--families", "trivia", "--n", "3", "--threads", "1")
    assert code == 0
    assert out.startswith("trivia ")
    assert "acceptance rate" in out


def test_sums_and_ratios_over_requests() -> None:
    first = Stats(completion_tokens=6, target_forwards=3, drafted=8, accepted=5, decode_s=0.5, accept_histogram={4: 1})
    second = Stats(completion_tokens=4, target_forwards=2, drafted=2, accepted=2, decode_s=1.5, accept_histogram={4: 2})
    sums = total([first, second])
    assert sums["acceptance"] == 0.7
    assert sums["tokens_per_target_forward"] == 2
    assert sums["tokens_per_s"] == 5
    assert sums["accept_histogram"] == {4: 3}
    assert "  0 |" in table(sums)
    nothing = total([Stats()])
    assert nothing["acceptance"] is None
    assert "acceptance" not in table(nothing)


def test_help_is_quick_and_pipes_may_break() -> None:
    code = (
        "import sys; from simsd.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules or 'ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0
    models = subprocess.Popen(
        [sys.executable, "-m", "simsd.cli.main", "models"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert models.stdout is not None
    models.stdout.close()
    _, err = models.communicate()
    assert err == ""
