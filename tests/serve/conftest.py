"""Tests of what serves: each file here by itself; server/ and process/ have one running server for all of theirs."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from simsd.config import SHIPPED
from simsd.models.files import resolve_model
from simsd.tokens.tokenizer import Tokenizer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses a server that others use too is marked `serve`.

    This folder's tests have limits in seconds, which a busy machine may miss: a failure counts if it repeats. But what
    was counted of one `command` is not counted again.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if {"server", "command"} & set(fixtures):
            item.add_marker(pytest.mark.serve)
        if item.path.is_relative_to(Path(__file__).parent) and "command" not in fixtures:
            item.add_marker(pytest.mark.flaky(reruns=2))


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).parents[2]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(resolve_model(SHIPPED, "target"))


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A directory with a short name: Ray's sockets live below it, and their paths may have 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="s-") as directory:
        yield Path(directory)
