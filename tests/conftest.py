"""One thread for torch in all tests, and which tests share a process where several run them (`pytest -n`)."""

import os

import pytest

# Processes share two cores, and torch's default is not made for small matrices. It is set before anything imports
# torch, and inherited by what tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SHARED = ("server", "command")
"""Fixtures of tests/serve that start a Ray for all tests that ask for them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a server are one group for `--dist loadgroup`, so that it is started once; others go by file.

    The groups with a server take longest and come first: the rest of the tests fills the other process.
    """
    order: dict[pytest.Item, int] = {}
    for item in items:
        shared = [name for name in SHARED if name in getattr(item, "fixturenames", ())]
        assert len(shared) < 2, f"{item.nodeid} asks for two servers"
        item.add_marker(pytest.mark.xdist_group(shared[0] if shared else item.nodeid.split("::")[0]))
        order[item] = SHARED.index(shared[0]) if shared else len(SHARED)
    items.sort(key=order.__getitem__)
