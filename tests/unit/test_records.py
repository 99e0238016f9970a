"""What version 0.1.0 answered is answered still, but for its faults: the same texts and counts, by every method."""

import json
from pathlib import Path

import pytest

from tests.unit.records import Group, groups, run

RECORDED = json.loads((Path(__file__).parents[1] / "records" / "0.1.0.json").read_text())


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.name)
def test_answers_are_those_of_0_1_0(group: Group) -> None:
    answered, recorded = json.loads(json.dumps(run(group))), RECORDED[group.name]
    for i, (now, then) in enumerate(zip(answered["answers"], recorded["answers"], strict=True)):
        assert now == then, group.params[i]
    assert answered["totals"] == recorded["totals"]
