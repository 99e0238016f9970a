"""One thread for torch in all tests, and which tests share a process where several run them (`pytest -n`)."""

import os
from typing import Any

import pytest

# Processes share two cores, and torch's default is not made for small matrices. It is set before anything imports
# torch, and inherited by what tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

FOLDERS = ("tests/serve/server/", "tests/serve/process/")
"""The tests of each share a running server, hence a process: one Ray at a time in each process."""


def group_of(nodeid: str) -> str:
    """What is run by one process: the tests of such a folder, or of a file."""
    file = nodeid.split("::")[0]
    return next((folder for folder in FOLDERS if file.startswith(folder)), file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The groups with a server take longest and come first; the rest of the tests fills the other process."""
    order = {folder: index for index, folder in enumerate(FOLDERS)}
    items.sort(key=lambda item: order.get(group_of(item.nodeid), len(order)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False  # by the number of tests, which says little
    return Scheduling(config, log)
