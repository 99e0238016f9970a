"""How much to draft, by what it brings: gamma, draft steps and row budget of each round of a sequence.

The rule: of the choices within the request's own limits, the one with the most expected tokens per second. Tokens: from
how often drafted tokens stood whose predecessors did, for each number of draft steps and each row budget, in the
sequence's own rounds, and before it has many in those of all with its method and remasking. Seconds: what the rows of
the choice add to a forward, and its part of what a forward costs however few rows it has. A choice not tried yet is
hoped to be always right, so all are soon tried; averages fade, so none is forgotten for good. To draft nothing, as
`vanilla`, is a choice too.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from simsd.messages.request import DecodeParams
from simsd.messages.round import Verdict, Verdicts
from simsd.verification.schemes import speculation

FADE = 0.99
"""Weight of a round when the next one has come."""
TRUST = 32.0
"""The average over all sequences weighs as much as so many judged tokens of a sequence's own."""
MARGIN = 1.1
"""Drafting must be expected to be so many times as fast as not to: the costs leave out what a round does beside."""
HOPE = 0.2
"""What is hoped of a choice weighs as much as so many judged tokens: a try refutes it, for hundreds of rounds."""


@dataclass(frozen=True, slots=True)
class Choice:
    """All 0: the target denoises by itself. `row_budget` counts in exact alone."""

    gamma: int
    draft_steps: int
    row_budget: int


@dataclass(slots=True)
class Line:
    """Seconds of a forward by its rows: fixed + each * rows, by least squares that fade."""

    weight: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    rows_rows: float = 0.0
    rows_seconds: float = 0.0

    def learn(self, rows: float, seconds: float) -> None:
        if self.weight > 4:  # a forward that was interrupted says nothing of its rows
            seconds = min(seconds, 3 * self.seconds / self.weight)
        values = (1.0, rows, seconds, rows * rows, rows * seconds)
        for name, value in zip(("weight", "rows", "seconds", "rows_rows", "rows_seconds"), values, strict=True):
            setattr(self, name, FADE * getattr(self, name) + value)

    def fit(self) -> tuple[float, float]:
        """(fixed, each), neither negative."""
        if not self.weight:
            return 0.0, 0.0
        mean_rows, mean = self.rows / self.weight, self.seconds / self.weight
        spread = self.rows_rows / self.weight - mean_rows**2
        together = self.rows_seconds / self.weight - mean_rows * mean
        # Forwards that were all alike say nothing of the slope: half of their cost is put down to the rows then.
        prior = 0.01 * mean_rows**2
        each = (together + prior * mean / (2 * mean_rows)) / (spread + prior)
        each = min(max(each, 0.0), mean / mean_rows)
        return mean - each * mean_rows, each


Key = tuple[int, int]
"""(draft_steps, row_budget) of a choice: what its tokens' fate depends on, beside method and remasking."""


@dataclass(slots=True)
class Fates:
    """How often a token stood whose predecessors did, for each key; fading sums (stood, judged)."""

    seen: defaultdict[Key, tuple[float, float]] = field(default_factory=lambda: defaultdict(lambda: (0.0, 0.0)))

    def learn(self, key: Key, stood: int, fell: bool, fade: float) -> None:
        for other, (good, judged) in self.seen.items():
            self.seen[other] = (fade * good, fade * judged)
        good, judged = self.seen[key]
        self.seen[key] = (good + stood, judged + stood + fell)

    def chance(self, key: Key, prior: float, trust: float) -> float:
        good, judged = self.seen[key]
        return (good + trust * prior) / (judged + trust)


@dataclass(slots=True)
class Costs:
    """What a loop has learned of its models and of all its sequences: `fates` for each method and remasking."""

    target: Line = field(default_factory=Line)
    draft: Line = field(default_factory=Line)
    fates: defaultdict[tuple[str, str], Fates] = field(default_factory=lambda: defaultdict(Fates))
    drafters: float = 0.0

    def learn(self, verdicts: Verdicts, drafters: int) -> None:
        """From the forwards of a round in which `drafters` sequences were drafted for."""
        if drafters:
            self.drafters += (drafters - self.drafters) / (4 if self.drafters else 1)
        if verdicts.target_forwards:
            self.target.learn(
                verdicts.target_rows / verdicts.target_forwards, verdicts.target_s / verdicts.target_forwards
            )
        if verdicts.draft_forwards:
            self.draft.learn(verdicts.draft_rows / verdicts.draft_forwards, verdicts.draft_s / verdicts.draft_forwards)

    def of_round(self, choice: Choice, params: DecodeParams, opened: int, block_size: int, running: int) -> float:
        """Seconds that a sequence's round takes of the pair, where `running` sequences share each forward."""
        fixed, each = self.target.fit()
        seconds = fixed / running + each * _target_rows(choice, params, opened, block_size)
        if choice.gamma:
            fixed, each = self.draft.fit()
            seconds += choice.draft_steps * (fixed / max(1.0, min(self.drafters, running)) + each * block_size)
            seconds *= MARGIN
        return seconds


def _target_rows(choice: Choice, params: DecodeParams, opened: int, block_size: int) -> int:
    """Rows of a round; a block that was just opened commits the one before it."""
    rows = speculation(params).cost(block_size, choice.gamma, choice.row_budget) if choice.gamma else block_size
    return rows + (block_size if opened == block_size else 0)


@dataclass(slots=True)
class Adaptive:
    """One sequence's choices. `params` are resolved: their gamma, draft_steps and row_budget are limits here."""

    params: DecodeParams
    block_size: int
    own: Fates = field(default_factory=Fates)
    now: Choice = Choice(0, 0, 0)
    opened: int = 0
    running: int = 1

    def choose(self, costs: Costs, opened: int, running: int) -> Choice:
        """For a round in which `opened` positions of the block are open, beside `running` sequences in all."""

        def worth(choice: Choice) -> float:
            seconds = costs.of_round(choice, self.params, opened, self.block_size, running)
            return self._tokens(choice, costs, opened) / seconds if seconds else 0.0

        self.opened, self.running = opened, running
        self.now = max(self._choices(opened), key=worth)  # the first of equals: with nothing measured, the most drafted
        return self.now

    def learn(self, costs: Costs, verdict: Verdict) -> None:
        """What came of the round."""
        if self.now.gamma and not verdict.drafted:
            return  # the draft was left behind, and is catching up
        # A walk, or a step of the target's own, has one token anyway, and ends with it unless the block is full.
        stood, fell = verdict.revealed - 1, verdict.revealed < self.opened
        if self.now.gamma and not self.params.foresees_target:
            stood, fell = verdict.accepted, verdict.recovered > 0
        key = (self.now.draft_steps, self.now.row_budget)
        self.own.learn(key, stood, fell, FADE)
        self._fates(costs).learn(key, stood, fell, FADE ** (1 / self.running))

    def _fates(self, costs: Costs) -> Fates:
        """Of all sequences that decode as this one does."""
        return costs.fates[self.params.method, self.params.remasking]

    def _tokens(self, choice: Choice, costs: Costs, opened: int) -> float:
        """Expected of a round: those that stand, and one of the target's own unless they fill the block."""
        hoped = 1.0
        if not choice.gamma and self.params.remasking in ("static", "sequential"):
            hoped = 1 - self.params.steps / self.block_size  # no hope: it is known
        key = (choice.draft_steps, choice.row_budget)
        chance = self.own.chance(key, self._fates(costs).chance(key, hoped, HOPE), TRUST)
        length = choice.gamma if choice.gamma and not self.params.foresees_target else opened - 1
        stand = sum(chance**i for i in range(1, length + 1))
        return stand + (1.0 if length < opened else 1.0 - chance**length)

    def _choices(self, opened: int) -> list[Choice]:
        params, size = self.params, self.block_size
        most = min(params.gamma, opened)
        gammas = sorted({most} if params.foresees_target else {most, max(1, most // 2)}, reverse=True)
        budgets = [params.row_budget]
        if params.foresees_target:
            budgets = sorted({min(params.row_budget, states * size) for states in (2, 4, 8, 16, 32)}, reverse=True)
        choices = [
            Choice(gamma, steps, budget)
            for gamma in gammas
            for steps in sorted({1, min(2, params.draft_steps, gamma), min(params.draft_steps, gamma)})
            for budget in budgets
        ]
        return [*choices, Choice(0, 0, 0)]
