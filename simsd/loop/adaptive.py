"""How much to draft: the gamma, draft steps and row budget of each round of a sequence, as `adaptive` chooses them.

Of the choices within the request's own limits, a round takes the one with the most expected tokens per second. Drafting
nothing, as `vanilla` does, is also a choice.

The expected tokens follow from the chance that a drafted token stands if those before it do. That chance is estimated
for each number of draft steps and each row budget. It comes from the sequence's own rounds, and, while these are few,
from the rounds of all sequences with the same method and remasking. The expected seconds are the time that the choice's
rows add to a forward, and the sequence's share of the fixed time of a forward.

A choice that has not been tried yet is assumed to be always right, so every choice is soon tried. Averages fade, so
every choice is tried again later.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from simsd.messages.request import DecodeParams
from simsd.messages.round import Verdict, Verdicts
from simsd.verification.schemes import speculation

FADE = 0.99
"""The factor by which the weight of a round falls with each later one."""
TRUST = 32.0
"""The average over all sequences weighs as much as this number of a sequence's own judged tokens."""
MARGIN = 1.1
"""Drafting is chosen only if it is expected to be this many times as fast as not drafting, because the costs leave out
the work of a round outside the forwards."""
HOPE = 0.2
"""The assumption about an untried choice weighs as much as this number of judged tokens. So a single try can refute it,
and does for hundreds of rounds."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to draft in a round. All 0: the target denoises by itself. `row_budget` matters only in exact."""

    gamma: int
    draft_steps: int
    row_budget: int


@dataclass(slots=True)
class Line:
    """The seconds of a forward by its rows, fixed + each * rows, fitted by least squares with fading weights."""

    weight: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    rows_rows: float = 0.0
    rows_seconds: float = 0.0

    def learn(self, rows: float, seconds: float) -> None:
        if self.weight > 4:  # A forward that was interrupted must not count as one that takes long.
            seconds = min(seconds, 3 * self.seconds / self.weight)
        values = (1.0, rows, seconds, rows * rows, rows * seconds)
        for name, value in zip(("weight", "rows", "seconds", "rows_rows", "rows_seconds"), values, strict=True):
            setattr(self, name, FADE * getattr(self, name) + value)

    def fit(self) -> tuple[float, float]:
        """Return (fixed, each), in seconds; neither is negative."""
        if not self.weight:
            return 0.0, 0.0
        mean_rows, mean = self.rows / self.weight, self.seconds / self.weight
        spread = self.rows_rows / self.weight - mean_rows**2
        together = self.rows_seconds / self.weight - mean_rows * mean
        # Forwards with equal numbers of rows say nothing about the slope. Half of their cost is then put down to rows.
        prior = 0.01 * mean_rows**2
        each = (together + prior * mean / (2 * mean_rows)) / (spread + prior)
        each = min(max(each, 0.0), mean / mean_rows)
        return mean - each * mean_rows, each


Key = tuple[int, int]
"""(draft_steps, row_budget) of a choice. Acceptance depends on these, beside method and remasking."""


@dataclass(slots=True)
class Fates:
    """How often a drafted token stood if those before it did. `seen` has fading sums (stood, judged) for each key."""

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
    """What a loop has learned from the rounds of all its sequences.

    target, draft: the cost of each model's forwards. fates: acceptance by method and remasking. drafters: a moving
    average of the sequences that a round drafts for.
    """

    target: Line = field(default_factory=Line)
    draft: Line = field(default_factory=Line)
    fates: defaultdict[tuple[str, str], Fates] = field(default_factory=lambda: defaultdict(Fates))
    drafters: float = 0.0

    def learn(self, verdicts: Verdicts, drafters: int) -> None:
        """Learn from the forwards of a round in which tokens were drafted for `drafters` sequences."""
        if drafters:
            self.drafters += (drafters - self.drafters) / (4 if self.drafters else 1)
        if verdicts.target_forwards:
            self.target.learn(
                verdicts.target_rows / verdicts.target_forwards, verdicts.target_s / verdicts.target_forwards
            )
        if verdicts.draft_forwards:
            self.draft.learn(verdicts.draft_rows / verdicts.draft_forwards, verdicts.draft_s / verdicts.draft_forwards)

    def of_round(self, choice: Choice, params: DecodeParams, opened: int, block_size: int, running: int) -> float:
        """Return the seconds that one sequence's part of a round costs, if `running` sequences share each forward."""
        fixed, each = self.target.fit()
        seconds = fixed / running + each * _target_rows(choice, params, opened, block_size)
        if choice.gamma:
            fixed, each = self.draft.fit()
            steps = choice.draft_steps * (1 + _beyond(choice, params, opened))
            seconds += steps * (fixed / max(1.0, min(self.drafters, running)) + each * block_size)
            seconds *= MARGIN
        return seconds


def _target_rows(choice: Choice, params: DecodeParams, opened: int, block_size: int) -> int:
    """Return the target's rows of a round. A block in which all positions are open commits the block before it.

    Each block that is drafted beyond takes the rows of a whole block, and those of the block before it. The row budget
    of exact bounds them all.
    """
    cost, beyond = speculation(params).cost, _beyond(choice, params, opened)
    rows = cost(block_size, opened, choice.gamma, choice.row_budget) if choice.gamma else block_size
    rows += beyond * (cost(block_size, block_size, params.gamma, choice.row_budget) + block_size)
    if params.foresees_target and choice.gamma:
        rows = min(rows, max(block_size, choice.row_budget))
    return rows + (block_size if opened == block_size else 0)


def _beyond(choice: Choice, params: DecodeParams, opened: int) -> int:
    """Return how many blocks are drafted beyond the open one: none, unless that is drafted whole."""
    return params.chain_length - 1 if choice.gamma == opened else 0


@dataclass(slots=True)
class Adaptive:
    """The choices of one sequence.

    params: the resolved settings, whose gamma, draft_steps and row_budget are limits here. own: acceptance in the
    sequence's own rounds. now: the choice for this round, when `opened` positions of the block were open and `running`
    sequences ran.
    """

    params: DecodeParams
    block_size: int
    own: Fates = field(default_factory=Fates)
    now: Choice = Choice(0, 0, 0)
    opened: int = 0
    running: int = 1

    def choose(self, costs: Costs, opened: int, running: int) -> Choice:
        """Choose for a round in which `opened` positions of the block are open and `running` sequences run."""

        def worth(choice: Choice) -> float:
            seconds = costs.of_round(choice, self.params, opened, self.block_size, running)
            return self._tokens(choice, costs, opened) / seconds if seconds else 0.0

        self.opened, self.running = opened, running
        # `max` takes the first of equal choices, so while nothing has been measured the most is drafted.
        self.now = max(self._choices(opened), key=worth)
        return self.now

    def learn(self, costs: Costs, verdict: Verdict) -> None:
        """Learn from the verdict of the round that was chosen for."""
        if self.now.gamma and not verdict.drafted:
            return  # The draft lacks KV and is catching up, so nothing was drafted.
        # A walk of exact, or a step of the target's own, ends with one token that comes in any case. It is not counted.
        beyond = self.block_size * (len(verdict.blocks) - 1)
        stood, fell = verdict.revealed - 1, verdict.revealed < self.opened + beyond
        if self.now.gamma and not self.params.foresees_target:
            stood, fell = verdict.accepted, verdict.recovered > 0
        key = (self.now.draft_steps, self.now.row_budget)
        self.own.learn(key, stood, fell, FADE)
        self._fates(costs).learn(key, stood, fell, FADE ** (1 / self.running))

    def _fates(self, costs: Costs) -> Fates:
        """Return the acceptance of all sequences with this one's method and remasking."""
        return costs.fates[self.params.method, self.params.remasking]

    def _tokens(self, choice: Choice, costs: Costs, opened: int) -> float:
        """Return the expected tokens of a round: drafted ones that stand, and one of the target's if room is left."""
        hoped = 1.0
        if not choice.gamma and self.params.remasking in ("static", "sequential"):
            hoped = 1 - self.params.steps / self.block_size  # This is known, not assumed.
        key = (choice.draft_steps, choice.row_budget)
        chance = self.own.chance(key, self._fates(costs).chance(key, hoped, HOPE), TRUST)
        beyond = self.block_size * _beyond(choice, self.params, opened)
        within = opened + beyond
        length = choice.gamma + beyond if choice.gamma and not self.params.foresees_target else within - 1
        stand = sum(chance**i for i in range(1, length + 1))
        return stand + (1.0 if length < within else 1.0 - chance**length)

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
