"""The raw counters of a loop, as plain numbers. The loop's owner exports them, and readers compute the ratios."""

from collections import Counter
from dataclasses import dataclass, field

from simsd.messages.request import Stats
from simsd.messages.round import Verdicts, Work


@dataclass(slots=True)
class ModelMetrics:
    """The counters of one model: forwards, rows in them, and seconds inside its calls, without transport."""

    prefill_forwards: int = 0
    decode_forwards: int = 0
    rows: int = 0
    seconds: float = 0.0

    def count(self, batch: list[Work], forwards: int, rows: int, seconds: float) -> None:
        """Count one call. Its forwards are decode forwards if any sequence had its open block in it, else prefill."""
        if any(work.block for work in batch):
            self.decode_forwards += forwards
        else:
            self.prefill_forwards += forwards
        self.rows += rows
        self.seconds += seconds


@dataclass(slots=True)
class LoopMetrics:
    """The counts since the start, over all sequences, including those that were cancelled later.

    drafts, accepts: over the rounds of sequences that verified a draft, how many rounds drafted or accepted each number
    of tokens. prompt_tokens, prefix_hit_tokens: a prompt is counted when it has been worked through.
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
        """Count a round: the works of both models, and their verdicts."""
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
        """Count the prompt of a sequence that begins to decode."""
        self.prompt_tokens += stats.prompt_tokens
        self.prefix_hit_tokens += stats.cached_tokens


def by_step(sizes: Counter[int]) -> list[int]:
    """Return, for each i from 0, how many rounds had more than i tokens. The sum is the number of tokens.

    sizes: how many rounds had each number of tokens. For the accepted tokens of `simsd`, i is the draft's own step,
    because the accepted tokens are a prefix of the drafted ones.
    """
    at_least = [0] * (max(sizes, default=0))
    for size, rounds in sizes.items():
        for step in range(size):
            at_least[step] += rounds
    return at_least
