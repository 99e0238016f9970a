"""The draft in a process of its own: the same text, drafts that are ready when they are asked for, a clear end."""

import os
import signal
import subprocess
import sys
import time

import pytest

from simsd.config import LoopConfig, WorkerConfig
from simsd.errors import CheckpointError, ConfigError, InternalError
from simsd.in_process import LocalClient, generate_all
from simsd.loop.loop import Loop
from simsd.messages.request import DecodeParams, Request
from simsd.messages.round import Verdicts
from simsd.worker.draft_process import DraftProcess
from tests.unit import pairs

B = 4
PROMPTS = [pairs.chat(question.prompt) for question in pairs.heldout(2)]


def loop_over(draft: DraftProcess) -> Loop:
    return Loop(LocalClient(pairs.worker("target", B)), draft, pairs.tokenizer(), LoopConfig(max_running=3))


def config(**settings: object) -> WorkerConfig:
    return WorkerConfig(role="draft", block_size=B, threads=1, **settings)  # type: ignore[arg-type]


def gone(pid: int | None) -> bool:
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("method", ["simsd", "exact"])
def test_the_same_text_from_drafts_that_are_ready(method: str) -> None:
    params = [
        DecodeParams(
            method=method,  # type: ignore[arg-type]
            draft_steps=1,
            temperature=i % 2,
            seed=i,
            max_tokens=32,
            ignore_eos=True,
            lookahead=i % 3,
        )
        for i in range(len(PROMPTS))
    ]
    want = pairs.run(pairs.loop_of(B, batch=3), PROMPTS, params)
    draft = DraftProcess(config())
    loop, ahead_s = loop_over(draft), []

    def see(began: float, verdicts: Verdicts) -> None:
        ahead_s.append(verdicts.ahead_s)

    loop.on_round = see
    got = generate_all(loop, [Request(str(i), ids, p) for i, (ids, p) in enumerate(zip(PROMPTS, params, strict=True))])
    assert [c.token_ids for c in got] == [c.token_ids for c in want]
    assert sum(seconds > 0 for seconds in ahead_s) > len(ahead_s) / 2
    draft.close()
    assert gone(draft.pid)


def test_the_command_ends_without_a_word() -> None:
    """Its last draft is still in the pipe when the command is done."""
    command = ["generate", "What is 3 plus 4?", "--overlap", "--max-tokens", "8", "--ignore-eos"]
    done = subprocess.run(
        [sys.executable, "-m", "simsd.cli.main", *command], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_what_its_process_cannot_load_is_said_here(tmp_path: object) -> None:
    with pytest.raises((CheckpointError, ConfigError), match="nothing-here"):
        DraftProcess(config(model=f"{tmp_path}/nothing-here"))


def test_a_dead_process_ends_requests_with_an_error() -> None:
    draft = DraftProcess(config())
    loop = loop_over(draft)
    assert draft.pid is not None
    os.kill(draft.pid, signal.SIGKILL)
    time.sleep(0.2)
    with pytest.raises(InternalError, match="the draft's process is gone"):
        generate_all(loop, [Request("a", PROMPTS[0], DecodeParams(method="simsd", max_tokens=8))])
    draft.close()
