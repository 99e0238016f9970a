"""One thread for torch in all tests, and which tests share a process where several run them (`pytest -n`).

Processes share two cores, and torch's default is not made for small matrices. It is set before anything imports torch,
and inherited by what tests start.
"""

import os
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

SHARE_A_CLUSTER = (
    "answers app autoscaling chat_command failures grpc_server openai_client page recipes streams tensor_parallel"
).split()
"""tests/serve/test_NAME.py that ask for the fixture `server`: one process, so that it is started once."""
SHARE_A_COMMAND = ("observability", "serve_command", "serve_config")
"""The same for the fixture `command`, and for others that start a Ray: one at a time."""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """File by file, but the cluster's tests together."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            for scope, names in (("cluster", SHARE_A_CLUSTER), ("command", SHARE_A_COMMAND)):
                if any(file.endswith(f"serve/test_{name}.py") for name in names):
                    return scope
            return file

    return Scheduling(config, log)
