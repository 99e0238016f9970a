"""`simsd bench speed engines` as a user runs it: engines on a Ray of its own beside one process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from simsd_bench.measure.engines import LINES, METHODS


@pytest.mark.slow
def test_engines_beside_one_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simsd.cli.main", "bench", "speed", "engines", "--quick"]
    ran = subprocess.run(
        [*command, "--json", str(tmp_path / "speed.json")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    rows = json.loads((tmp_path / "speed.json").read_text())["sections"]["engines"]
    assert [(row["batch"], row["method"], row["line"]) for row in rows] == [
        (batch, method, line) for batch in (1, 4) for method in METHODS for line in LINES
    ]
    assert all(row["tokens_per_s"] > 0 for row in rows)
    assert all((row["ratio"] == 1) == (row["line"] == LINES[0]) for row in rows)
    assert "simsd with engines on Ray, of its speed in process, 1 at a time | 0.85 |" in ran.stdout
