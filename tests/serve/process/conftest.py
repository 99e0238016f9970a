"""One `simsd serve` for all tests of this folder."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.command import Command, running


@pytest.fixture(scope="package")
def command() -> Iterator[Command]:
    """`simsd serve` in a process of its own; its last test stops it."""
    with tempfile.TemporaryDirectory(prefix="s-") as directory, running(Path(directory)) as command:
        yield command
