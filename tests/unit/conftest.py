"""Fixtures that several files share: a small random pair, and what it answers to each request by itself."""

import pytest

from tests.unit.loops import Answer, Pair, answers_alone, write_pair


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return write_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="session")
def alone(pair: Pair) -> list[Answer]:
    return answers_alone(pair)
