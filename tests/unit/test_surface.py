"""Every option, setting and field that version 0.1.0 took is taken still, with the same values and the same default."""

import json
from pathlib import Path

from tests.unit.surface import surface

RECORDED = json.loads((Path(__file__).parents[1] / "records" / "surface-0.1.0.json").read_text())


def test_nothing_that_0_1_0_took_is_lost_or_means_something_else() -> None:
    now = json.loads(json.dumps(surface()))
    assert not sorted(RECORDED.keys() - now.keys())
    differing = {name: (then, now[name]) for name, then in RECORDED.items() if not _kept(then, now[name])}
    assert not differing


def _kept(then: dict[str, object], now: dict[str, object]) -> bool:
    """Bounds and allowed values may be told where they were not; nothing that was told may be another."""
    return all(now.get(key) == value for key, value in then.items())
