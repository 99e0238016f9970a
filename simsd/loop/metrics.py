"""Raw counters of a loop, in plain numbers; ratios are left to who reads them, and exporting to who owns the loop."""

from collections import Counter
from dataclasses import dataclass, field

from simsd.messages.request import Stats
from simsd.messages.round import Verdicts, Work


@dataclass(slots=True)
class ModelMetrics:
    """Of one model: forwards, rows in them, and seconds inside its calls (transport is outside)."""

    prefill_forwards: int = 0
    decode_forwards: int = 0
    rows: int = 0
    seconds: float = 0.0

    def count(self, batch: list[Work], forwards: int, rows: int, seconds: float) -> None:
        """A call is one kind as a whole: `decode` as soon as one sequence's open block is in it, else `prefill`."""
        if any(work.block for work in batch):
            self.decode_forwards += forwards
        else:
            self.prefill_forwards += forwards
        self.rows += rows
        self.seconds += seconds


@dataclass(slots=True)
class LoopMetrics:
    """Counts since the start, over all sequences, also those that were cancelled later.

    `drafts` and `accepts`: how many tokens a sequence's round drafted or accepted -> how many such rounds there were,
    for the rounds that verified a draft. `prompt_tokens` and `prefix_hit_tokens` count once a prompt is worked through.
    """

    rounds: int = 0
    sequence_rounds: int = 0
    prompt_tokens: int = 0
    prefix_hit_tokens: int = 0
    generated_tokens: int = 0
    recovered: int = 0
    bonus: int = 0
    fallback_tokens: int = 0
    drafts: Counter[int] = field(default_factory=Counter)
    accepts: Counter[int] = field(default_factory=Counter)
    target: ModelMetrics = field(default_factory=ModelMetrics)
    draft: ModelMetrics = field(default_factory=ModelMetrics)

    def count(self, drafting: list[Work], verifying: list[Work], verdicts: Verdicts) -> None:
        """A round: what both models were asked, and what came of it."""
        self.rounds += 1
        self.sequence_rounds += len(verdicts.items)
        self.target.count(verifying, verdicts.target_forwards, verdicts.target_rows, verdicts.target_s)
        if drafting:
            self.draft.count(drafting, verdicts.draft_forwards, verdicts.draft_rows, verdicts.draft_s)
        for verdict in verdicts.items.values():
            if verdict.drafted:
                self.drafts[verdict.drafted] += 1
                self.accepts[verdict.accepted] += 1
                self.recovered += verdict.recovered
                self.bonus += verdict.bonus
            self.fallback_tokens += verdict.fallback

    def count_prompt(self, stats: Stats) -> None:
        """A sequence begins to decode."""
        self.prompt_tokens += stats.prompt_tokens
        self.prefix_hit_tokens += stats.cached_tokens


def by_step(sizes: Counter[int]) -> list[int]:
    """From "rounds with n tokens" to "rounds with a token at step i", i from 0; their sum is the number of tokens.

    Of accepted tokens step i is the i-th that stood: in `simsd` the draft's own step, as what stands is a prefix.
    """
    at_least = [0] * (max(sizes, default=0))
    for size, rounds in sizes.items():
        for step in range(size):
            at_least[step] += rounds
    return at_least
