"""`simsd chat --url` against the running server."""

import io

import pytest

from simsd.cli import main as cli
from tests.serve.server.conftest import Server

QUESTION = "What is the capital of France?"


def test_a_conversation_with_a_server(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{QUESTION}\n/clear\n{QUESTION}\n"))
    options = ["--stats", "--method", "exact", "--max-tokens", "24", "--logit-bias", "5:-1"]
    assert cli.main(["chat", "--url", server.url, *options]) == 0
    out = capsys.readouterr()
    assert out.out == "The capital of France is Paris.\n" * 2
    assert out.err.count("forwards: ") == 2


def test_a_refusal_ends_the_turn_not_the_chat(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{QUESTION}\n{QUESTION}\n"))
    assert cli.main(["chat", "--url", server.url, "--gamma", "99"]) == 0
    assert capsys.readouterr().err.count("simsd chat: simsd.gamma must be between 1 and 4; got 99") == 2
