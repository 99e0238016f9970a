"""The recipes of the documents do what they say, on the real server."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.server.conftest import Server

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)


RECIPES = [
    (curl, expected)
    for block in blocks("http.md", "bash")
    for curl, expected in re.findall(r"^(curl .*)\n#> (.*)$", block, flags=re.MULTILINE)
]


def test_every_curl_has_its_expectation() -> None:
    assert len(RECIPES) == sum(block.count("curl ") for block in blocks("http.md", "bash")) > 10


@pytest.mark.parametrize(("curl", "expected"), RECIPES, ids=lambda value: value[:60])
def test_curl_recipes(server: Server, curl: str, expected: str) -> None:
    assert "localhost:8000" in curl
    here = curl.replace("curl ", "curl -sS --fail-with-body --max-time 60 ", 1)
    here = here.replace("localhost:8000", server.url.removeprefix("http://"))
    done = subprocess.run(
        ["bash", "-c", here], capture_output=True, text=True, timeout=90, env=os.environ | {"KEY": "none"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert expected in done.stdout


@pytest.mark.parametrize("program", blocks("clients.md", "python"), ids=range(len(blocks("clients.md", "python"))))
def test_python_programs(server: Server, program: str) -> None:
    assert "http://localhost:8000" in program
    here = program.replace("http://localhost:8000", server.url)
    done = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
