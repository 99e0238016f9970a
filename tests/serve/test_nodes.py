"""Pairs on several nodes, one of which is lost."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_pairs_come_and_go_and_a_node_is_lost(tmp_path: Path) -> None:
    """Every request ends in the right text, or in an error that the lost node excuses.

    It runs in a process and an environment of its own, since Ray leaves traces in both.
    """
    command = [sys.executable, "-m", "simsd_bench.cluster.scaling", "--nodes", "3", "--clients", "12"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTEST_"))}
    command += ["--results", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=inherited)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = (tmp_path / "scaling.md").read_text()
    steps, requests = report.split("| requests |")
    pairs = re.findall(r"^\| [\w ]+ \| (\d+) \| [\d.]+ \|$", steps, re.MULTILINE)
    *before, left, joined, one_client, changed = [int(count) for count in pairs]
    assert (before, joined, one_client, changed) == ([1, 2, 3], 3, 1, 1), report
    assert left in (1, 2), report  # by what the lost node had: a pair, or two engines of one kind
    (answered,) = re.findall(r"^\| answered \| (\d+) \|$", requests, re.MULTILINE)
    assert int(answered) > 50, report
