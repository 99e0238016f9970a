"""The way of one request's batch through the target: each module is entered at most twice (docs/architecture.md)."""

import inspect
import sys
from collections import Counter
from functools import cached_property
from itertools import groupby
from types import FrameType
from typing import Any

import pytest

from simsd.in_process import LocalClient, generate_all
from simsd.messages.round import Proposals, Verdicts, Work
from tests.unit.loops import Pair, request

MOST = 2


class Walker(LocalClient):
    """A target that notes, for each verify call, which modules are entered from another one, in their order.

    The model's forward is one entry, whatever its layers call. Messages are data, and properties, comprehensions and
    what Python calls by itself are part of the function that uses them.
    """

    def __init__(self, worker: Any) -> None:
        super().__init__(worker)
        self.walks: list[list[str]] = []

    async def verify(self, batch: list[Work], proposals: Proposals | None) -> Verdicts:
        entered: list[str] = []
        inside_model = 0

        def note(frame: FrameType, event: str, _: Any) -> None:
            nonlocal inside_model
            module = module_of(frame)
            is_model = module.startswith("simsd.models.") and frame.f_code.co_name in ("forward", "logits")
            counts = event == "call" and own(module) and not inside_model and not small(frame)
            if counts and module_of(caller(frame)) != module:
                entered.append(module)
            if is_model and event in ("call", "return"):
                inside_model += 1 if event == "call" else -1

        sys.setprofile(note)
        try:
            verdicts = self.worker.verify(batch, proposals)
        finally:
            sys.setprofile(None)
        self.walks.append([module for module, _ in groupby(entered)])
        return verdicts


def module_of(frame: FrameType | None) -> str:
    return "" if frame is None else frame.f_globals.get("__name__", "")


def own(module: str) -> bool:
    return module.startswith("simsd.") and not module.startswith("simsd.messages")


def small(frame: FrameType) -> bool:
    """A property, a comprehension, or what Python or a dataclass calls."""
    code = frame.f_code
    if code.co_name.startswith(("<", "__")) or not code.co_filename.endswith(".py"):
        return True
    owner = type(frame.f_locals.get("self", None))
    return isinstance(inspect.getattr_static(owner, code.co_name, None), property | cached_property)


def caller(frame: FrameType) -> FrameType | None:
    found = frame.f_back
    while found is not None and small(found):
        found = found.f_back
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "vanilla"},
        {"layout": "paired"},
        {"layout": "branches"},
        {"method": "exact"},
        {"method": "s2d2"},
        {"temperature": 1.0},
    ],
    ids=str,
)
def test_each_module_is_entered_at_most_twice(pair: Pair, settings: dict[str, Any]) -> None:
    target = Walker(pair.worker("target"))
    loop = pair.loop(target, pair.worker("draft"))
    generate_all(loop, [request("walk", 13, **settings)])
    assert len(target.walks) > 3
    for walk in target.walks:
        assert max(Counter(walk).values()) <= MOST, walk
