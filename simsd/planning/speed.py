"""Predicted tokens a second by method, depth and batch, and what bounds them. docs/capacity.md derives the formula.

    chain → rounds, rows and drafted blocks of an answer → seconds of a round → tokens a second of the batch

These are predictions: from the cost of forwards (`simsd.planning.costs`) and the chances of drafted tokens
(`simsd.planning.chain`). Decoding alone is predicted; the time of prompts is part of `simsd.planning.capacity`.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from simsd.errors import ConfigError
from simsd.planning.chain import MAX_DEPTH, Counts, Depths, Dynamic, LeftToRight, Method, States, Static, count
from simsd.planning.costs import ForwardCost, require

Way = Literal["in turns", "beside"]
"""How draft and target share the time: on one device or in one process they take turns. With a device or a process of
its own the draft works beside the target."""
SHARE, DRAFT_SHARE = 0.97, 0.87
"""The share of a block's open positions of which the shipped pair's target and draft are sure (threshold .9)."""
FORESEEN = 0.7
"""The probability that `exact` looks at the state to which a step of the shipped pair's target leads."""
STATES = 8
"""The states of a block that the default of `row_budget` allows."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is decoded. prompt_tokens: before it. ends: 1 if an EOS ends it, which is not one of `tokens`."""

    prompt_tokens: int
    tokens: int
    ends: int = 0

    @property
    def context(self) -> float:
        """The mean number of tokens before the open block."""
        return self.prompt_tokens + self.tokens / 2


@dataclass(frozen=True, slots=True)
class Machine:
    """What rounds cost. draft: None if there is no draft. overhead_s, sequence_s: seconds of a round beside the
    forwards, for transport and the loop, and for each sequence in it."""

    target: ForwardCost
    draft: ForwardCost | None = None
    overhead_s: float = 2e-3
    sequence_s: float = 0.0

    def __post_init__(self) -> None:
        require("overhead_s", self.overhead_s, 0)
        require("sequence_s", self.sequence_s, 0)


@dataclass(frozen=True, slots=True)
class Setting:
    """How to decode. depth: blocks drafted beyond the open one. draft_steps: draft forwards for each drafted block."""

    method: Method
    block_size: int
    depth: int = 0
    way: Way = "in turns"
    draft_steps: int = 1

    def __post_init__(self) -> None:
        require("block_size", self.block_size, 1, 64)
        require("depth", self.depth, 0, MAX_DEPTH if self.method.drafts else 0)
        require("draft_steps", self.draft_steps, 1, self.block_size)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is predicted for a batch of answers that begin together.

    seconds: until the last of them is decoded. parts: what these are made of, in seconds; `bound` is the largest.
    rounds, target_rows, drafted_blocks: of all answers together. A sequence has one verification a round.
    """

    tokens: int
    seconds: float
    parts: dict[str, float]
    rounds: float
    target_rows: float
    drafted_blocks: float

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def tokens_per_verification(self) -> float:
        return self.tokens / self.rounds

    @property
    def bound(self) -> str:
        return max(self.parts, key=lambda name: self.parts[name])


def predict(machine: Machine, setting: Setting, answers: Sequence[Answer]) -> Prediction:
    """Predict the decoding of a batch: all answers begin together, and the batch shrinks as they end."""
    if setting.method.drafts and machine.draft is None:
        raise ConfigError("a method that drafts needs the cost of a draft's forwards")
    running, size = len(answers), setting.block_size
    context = sum(answer.context for answer in answers) / running
    depths = _depths(machine, setting, running, context)
    counts = [
        count(setting.method, size, answer.prompt_tokens % size, answer.tokens + answer.ends, depths)
        for answer in answers
    ]
    total = Counts.sum(counts)
    parts: defaultdict[str, float] = defaultdict(float)
    before = 0.0
    for ended, rounds in enumerate(sorted(each.rounds for each in counts)):
        if rounds > before:
            for name, seconds in _round(machine, setting, total, running - ended, context).items():
                parts[name] += (rounds - before) * seconds
            before = rounds
    return Prediction(
        tokens=sum(answer.tokens for answer in answers),
        seconds=sum(parts.values()),
        parts=dict(parts),
        rounds=total.rounds,
        target_rows=total.target_rows(size),
        drafted_blocks=total.blocks if setting.method.drafts else 0.0,
    )


def _round(machine: Machine, setting: Setting, counts: Counts, running: int, context: float) -> dict[str, float]:
    """Return what a mean round of `running` sequences takes, in seconds: overhead, the draft, and the target.

    The target's time has the name of its largest part.
    """
    a_round = running / counts.rounds
    verify = (a_round * counts.target_rows(setting.block_size), a_round * counts.logits, running, context)
    target_s = machine.target.seconds(*verify)
    bounds = machine.target.parts(*verify)
    return {
        "overhead": machine.overhead_s + running * machine.sequence_s,
        "the draft": _waiting_s(machine, setting, counts, running, context, target_s),
        max(bounds, key=lambda name: bounds[name]): target_s,
    }


def _waiting_s(
    machine: Machine, setting: Setting, counts: Counts, running: int, context: float, target_s: float
) -> float:
    """Return the seconds of a round in which the target waits for the draft.

    In turns it waits for all draft forwards, as many as the longest chain of the batch has. Beside the draft it waits
    for the open block's if the draft must begin anew for one of the sequences, and else for what a verification leaves
    of them.
    """
    if machine.draft is None or not setting.method.drafts:
        return 0.0
    size, steps = setting.block_size, setting.draft_steps
    if setting.way == "in turns":
        at_most = [sum(counts.by_blocks[: number + 1]) / counts.rounds for number in range(len(counts.by_blocks))]
        forwards = steps * sum(1 - min(1.0, share) ** running for share in at_most)
        rows = running * counts.draft_rows(size, steps) / counts.rounds / forwards
        return forwards * machine.draft.seconds(rows, running * size, running, context)
    drafting = _open_block_s(machine.draft, setting, running, context)
    anew = 1 - max(0.0, 1 - counts.anew / counts.rounds) ** running
    return anew * drafting + (1 - anew) * max(0.0, drafting - target_s)


def _open_block_s(draft: ForwardCost, setting: Setting, running: int, context: float) -> float:
    """Return the seconds in which the draft drafts one block, laid behind a block that is committed or assumed."""
    size = setting.block_size
    first = draft.seconds(running * 2 * size, running * size, running, context)
    later = draft.seconds(running * size, running * size, running, context)
    return first + (setting.draft_steps - 1) * later


def _depths(machine: Machine, setting: Setting, running: int, context: float) -> Depths:
    """Return how deep rounds are: always as deep as it is set in turns; beside each other as far as the draft gets.

    The draft goes on from the chain's end while the target verifies. If the chain stands, the next one has as many
    blocks as were drafted meanwhile. If not, the target goes on with the open block alone.
    """
    if machine.draft is None or setting.way == "in turns" or not setting.method.drafts:
        return Depths.always(setting.depth)
    size, method = setting.block_size, setting.method
    drafting = _open_block_s(machine.draft, setting, running, context)
    rows, logits = method.rows(size, size), method.logits(size)
    on = []
    for blocks in range(1, setting.depth + 2):
        verifying = machine.target.seconds(
            running * blocks * (rows + size), running * blocks * logits, running, context
        )
        drafted = setting.depth + 1 if drafting <= 0 else int(verifying / drafting)
        on.append(min(setting.depth, max(0, drafted - 1)))
    return Depths(0, tuple(on))


def methods(
    acceptance: float,
    share: float,
    draft_share: float = DRAFT_SHARE,
    foreseen: float = FORESEEN,
    states: int = STATES,
) -> dict[str, Method]:
    """Return the methods that are predicted, by name."""
    return {
        "vanilla static": Static(),
        "vanilla dynamic": Dynamic(share),
        "simsd left to right": LeftToRight(acceptance),
        "exact over dynamic": States(acceptance, share, draft_share, foreseen, states),
    }


@dataclass(frozen=True, slots=True)
class Line:
    """A predicted setting of a survey."""

    name: str
    batch: int
    setting: Setting
    prediction: Prediction


def survey(
    machine: Machine,
    named: dict[str, Method],
    block_size: int,
    draft_steps: int,
    answer: Answer,
    depths: Iterable[int],
    batches: Iterable[int],
    ways: Iterable[Way],
) -> list[Line]:
    """Predict every method at every depth, batch and way that it has; a batch is so many answers alike."""
    depths, ways = list(depths), list(ways)
    lines = []
    for batch in batches:
        for name, method in named.items():
            settings = [Setting(method, block_size)]
            if method.drafts:
                settings = [Setting(method, block_size, depth, way, draft_steps) for depth in depths for way in ways]
            lines += [Line(name, batch, each, predict(machine, each, [answer] * batch)) for each in settings]
    return lines


def fastest(lines: Iterable[Line]) -> Line:
    """Return the line with the most predicted tokens a second; of equal ones, the first, which is the least deep."""
    return max(lines, key=lambda line: line.prediction.tokens_per_s)
