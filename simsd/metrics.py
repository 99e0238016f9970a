"""Raw counters of a loop; ratios are left to who reads them."""

from dataclasses import dataclass

from simsd.types import Verdicts


@dataclass(slots=True)
class LoopMetrics:
    """Counts since the start; `_s` are seconds spent inside the workers' calls."""

    rounds: int = 0
    target_forwards: int = 0
    target_rows: int = 0
    target_s: float = 0.0
    draft_forwards: int = 0
    draft_rows: int = 0
    draft_s: float = 0.0

    def count(self, verdicts: Verdicts) -> None:
        self.rounds += 1
        self.target_forwards += verdicts.target_forwards
        self.target_rows += verdicts.target_rows
        self.target_s += verdicts.target_s
        self.draft_forwards += verdicts.draft_forwards
        self.draft_rows += verdicts.draft_rows
        self.draft_s += verdicts.draft_s
