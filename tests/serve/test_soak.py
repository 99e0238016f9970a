"""The short form of the soak: a server under every kind of load, each of whose parts is killed once."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from simsd_bench.cluster.soak import COMPONENTS


@pytest.mark.slow
def test_nothing_breaks_and_nothing_is_left(tmp_path: Path) -> None:
    options = ["--minutes", "2", "--clients", "8", "--kill-every", "25", "--results", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, "-m", "simsd_bench.cluster.soak", *options],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = (tmp_path / "soak.md").read_text()
    for component in COMPONENTS:
        assert re.search(rf"^\| {component} \| [1-9]", report, re.MULTILINE), report
