"""Compares the predicted speed of `simsd plan --speed` with this machine.

Some prompts are decoded to learn what the prediction takes: the cost of forwards by their rows in both models, the time
of a round beside them, and the chances of drafted tokens and states. The speed of every setting is predicted from these
and compared with what is measured over other prompts. The lengths of the answers are those of the measured ones.
"""

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from simsd.errors import ConfigError
from simsd.eval.datasets import Item
from simsd.in_process import Completion, generate_all
from simsd.loop.loop import Loop
from simsd.messages.options import options_of
from simsd.messages.request import DecodeParams, Request
from simsd.messages.round import Verdicts
from simsd.planning.chain import Depths, States, count, dynamic_steps, share_of
from simsd.planning.costs import Curve, Fitted
from simsd.planning.speed import Answer, Machine, Prediction, Setting, Way, methods, predict
from simsd_bench.measure import decode
from simsd_bench.measure.pair import PairSpec

Call = tuple[int, int, float]
"""Forwards of one call, their rows altogether, and their seconds."""
Params = dict[str, DecodeParams]
LEARNING_BATCHES = (1, 2, 4, 8)
"""Sequences decoded together while costs are measured."""
TARGET_RATIO = 1.2
"""The prediction is to be within this factor of the measured speed."""


def settings_of(max_tokens: int) -> Params:
    """Return how each method of the prediction decodes, under its name there; all that matters is set, not left to
    defaults."""
    base = DecodeParams(max_tokens=max_tokens, adaptive=False)
    drafting = dataclasses.replace(base, drafter="model", draft_steps=1)
    return {
        "vanilla static": dataclasses.replace(base, method="vanilla", remasking="static"),
        "vanilla dynamic": dataclasses.replace(base, method="vanilla", remasking="dynamic"),
        "simsd left to right": dataclasses.replace(drafting, method="simsd", remasking="sequential", layout="paired"),
        "exact over dynamic": dataclasses.replace(drafting, method="exact", remasking="dynamic"),
    }


def at_depth(params: DecodeParams, depth: int) -> DecodeParams:
    """Return the settings with `depth` blocks drafted beyond the open one; `ConfigError` if this version cannot."""
    if "lookahead" in options_of(DecodeParams):
        setting: dict[str, Any] = {"lookahead": depth}
        return dataclasses.replace(params, **setting)
    if depth:
        raise ConfigError(f"this version drafts no blocks beyond the open one; depth must be 0, not {depth}")
    return params


@dataclass(slots=True)
class Watch:
    """What the rounds of a loop took. It sees rounds in which all sequences decode; `see` is the loop's `on_round`.

    target, draft: the calls of each model. rest: seconds of a round beside them, by the number of sequences.
    walked, missed: steps of `exact` that led to a state that was looked at, and to one that was not.
    """

    target: list[Call] = field(default_factory=list)
    draft: list[Call] = field(default_factory=list)
    rest: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    walked: int = 0
    missed: int = 0
    last: tuple[frozenset[str], float] = (frozenset(), 0.0)

    def see(self, began: float, verdicts: Verdicts) -> None:
        now = time.perf_counter()
        ids = frozenset(verdicts.items)
        before, self.last = self.last, (frozenset(), now)
        if not all(verdict.revealed for verdict in verdicts.items.values()):
            return
        self.last = (ids, now)
        if before[0] != ids:
            return  # The first round of these sequences may contain prompts.
        self.target.append((verdicts.target_forwards, verdicts.target_rows, verdicts.target_s))
        if verdicts.draft_forwards:
            self.draft.append((verdicts.draft_forwards, verdicts.draft_rows, verdicts.draft_s))
        self.rest[len(ids)].append(max(0.0, now - before[1] - verdicts.target_s - verdicts.draft_s))
        for verdict in verdicts.items.values():
            for block in verdict.blocks:
                if block.drafted:
                    self.walked += block.steps - 1
                    self.missed += set(block.kinds) == {"accepted"} and len(block.reveals) < block.drafted


@dataclass(frozen=True, slots=True)
class Chances:
    """What the chain takes, as it was measured at one block size. Token acceptance is that of each method's own draft.

    The others are those of `simsd.planning.chain.States`.
    """

    simsd_acceptance: float
    exact_acceptance: float
    share: float
    draft_share: float
    foreseen: float


@dataclass(frozen=True, slots=True)
class Decoded:
    """The answers of one method, and the rows of the target's forwards that decoded them, without the prompts'."""

    done: list[Completion]
    rows: int

    @property
    def acceptance(self) -> float:
        accepted = sum(one.stats.accepted for one in self.done)
        judged = accepted + sum(one.stats.recovered for one in self.done)
        return accepted / judged if judged else 0.0

    def steps(self, block_size: int) -> int:
        """The target's forwards. Those that only took in a prompt are left out: it then has at least two blocks."""
        whole = (one.stats.prompt_tokens // block_size for one in self.done)
        return sum(one.stats.target_forwards for one in self.done) - sum(blocks > 1 for blocks in whole)


def learn(loop: Loop, block_size: int, asked: Sequence[Item], params: Params, watch: Watch) -> Chances:
    """Decode prompts in batches of several sizes by all methods, which `watch` sees, and return what was learned."""
    ids = [loop.tokenizer.encode_messages(item.messages) for item in asked]
    generate_all(loop, [Request("warm", ids[0], params["exact over dynamic"])])
    decoded, states = {}, Watch()
    for name, each in params.items():
        loop.on_round = _all([watch, states] if each.method == "exact" else [watch])
        decoded[name] = _decode(loop, ids, each, block_size)
    loop.on_round = None
    budget = params["exact over dynamic"].resolve(block_size).row_budget
    return chances_of(block_size, decoded, states, budget // block_size)


def _decode(loop: Loop, ids: Sequence[list[int]], params: DecodeParams, block_size: int) -> Decoded:
    """Decode all prompts once in each of the `LEARNING_BATCHES`."""
    before, done = loop.metrics.target.rows, list[Completion]()
    for batch in LEARNING_BATCHES:
        for first in range(0, len(ids), batch):
            together = ids[first : first + batch]
            done += generate_all(loop, [Request(f"{first + i}", one, params) for i, one in enumerate(together)])
    prompts = sum(one.stats.prompt_tokens // block_size * block_size for one in done)
    return Decoded(done, loop.metrics.target.rows - before - prompts)


def chances_of(block_size: int, decoded: dict[str, Decoded], states: Watch, most_states: int) -> Chances:
    """Return the chances with which the chain has the counts of these answers.

    The shares are those with which it takes as many steps as vanilla dynamic did, and as many rows as `exact` did.
    states: the rounds of `exact`.
    """
    dynamic, exact = decoded["vanilla dynamic"], decoded["exact over dynamic"]
    seen = states.walked + states.missed
    foreseen = states.walked / seen if seen else 1.0
    answers = [(a.prompt_tokens % block_size, a.tokens + a.ends) for a in map(answer_of, dynamic.done)]

    def steps(share: float) -> float:
        return sum(dynamic_steps(share, block_size, *answer) for answer in answers)

    share = share_of(steps, dynamic.steps(block_size))

    def rows(draft_share: float) -> float:
        method = States(exact.acceptance, share, draft_share, foreseen, most_states)
        counts = (count(method, block_size, *answer, Depths.always(0)) for answer in answers)
        return sum(each.target_rows(block_size) for each in counts)

    return Chances(
        simsd_acceptance=decoded["simsd left to right"].acceptance,
        exact_acceptance=exact.acceptance,
        share=share,
        draft_share=share_of(rows, exact.rows),
        foreseen=foreseen,
    )


def _all(watching: Sequence[Watch]) -> Callable[[float, Verdicts], None]:
    def see(began: float, verdicts: Verdicts) -> None:
        for watch in watching:
            watch.see(began, verdicts)

    return see


def answer_of(done: Completion) -> Answer:
    """Return the answer as the prediction takes it: an EOS had to be revealed, too, although it is no token of it."""
    return Answer(done.stats.prompt_tokens, done.stats.completion_tokens, int(done.finish_reason == "stop"))


def machine_of(watch: Watch) -> Machine:
    """Return the machine that the prediction takes, from all that `watch` has seen at all block sizes."""
    medians = [(1, count, median(seconds)) for count, seconds in sorted(watch.rest.items())]
    rest = Fitted.to(medians) if len(medians) > 1 else Fitted(medians[0][2], 0.0)
    return Machine(Curve.of(watch.target), Curve.of(watch.draft), rest.forward_s, rest.row_s)


def check(
    spec: PairSpec,
    asked: Sequence[Item],
    block_sizes: Sequence[int],
    batches: Sequence[int],
    depths: Sequence[int],
    max_tokens: int,
    note: Callable[[str], object],
) -> dict[str, Any]:
    """Learn from the first third of the prompts, and compare predicted with measured speed over the rest.

    What is compared are all methods of `settings_of` but `vanilla static`, at every block size and batch, and at every
    depth if they draft. With `spec.overlap` draft and target work beside each other while speed is measured; costs are
    always measured in turns.
    """
    learning, rest = asked[: len(asked) // 3], asked[len(asked) // 3 :]
    if not learning or len(rest) < max(batches):
        raise ConfigError(
            f"prompts must be more than {len(asked)}: a third is learned from, and the rest must fill {max(batches)} "
            "at a time"
        )
    params, watch, found = settings_of(max_tokens), Watch(), {}
    for block_size in block_sizes:
        note(f"B={block_size}: learning from {len(learning)} prompts in {len(LEARNING_BATCHES)} batch sizes")
        loop = dataclasses.replace(spec, overlap=False).loop(block_size, max(LEARNING_BATCHES))
        found[block_size] = learn(loop, block_size, learning, params, watch)
    machine, rows = machine_of(watch), list[dict[str, Any]]()
    way: Way = "beside" if spec.overlap else "in turns"
    for block_size in block_sizes:
        for batch in batches:
            loop = spec.loop(block_size, batch)
            compared = [
                decode.Setting(name, at_depth(each, depth), loop, {"batch": batch, "lookahead": depth})
                for name, each in params.items()
                for depth in (depths if each.needs_draft else (0,))
                if name != "vanilla static"
            ]
            note(f"B={block_size}, batch {batch}: {len(compared)} settings over {len(rest)} prompts")
            results = decode.measure(rest, compared, batch)
            rows += [_row(machine, found[block_size], block_size, way, result) for result in results]
    return {
        "prompts": {"learning": len(learning), "compared": len(rest)},
        "threads": spec.threads,
        "way": way,
        "machine": dataclasses.asdict(machine),
        "chances": {block_size: dataclasses.asdict(chances) for block_size, chances in found.items()},
        "rows": rows,
        "within": sum(1 / TARGET_RATIO <= row["ratio"] <= TARGET_RATIO for row in rows),
    }


def _row(machine: Machine, chances: Chances, block_size: int, way: Way, result: decode.Result) -> dict[str, Any]:
    """Return one setting's predicted and measured figures. `ratio` is measured over predicted tokens/s."""
    name, facts = result.setting.name, result.setting.facts
    acceptance = chances.exact_acceptance if name == "exact over dynamic" else chances.simsd_acceptance
    states = result.setting.params.resolve(block_size).row_budget // block_size
    method = methods(acceptance, chances.share, chances.draft_share, chances.foreseen, states)[name]
    setting = Setting(method, block_size, facts["lookahead"], way if method.drafts else "in turns")
    predictions: list[Prediction] = []
    measured_s, decoded = 0.0, Decoded([], sum(sample.rows for sample in result.samples))
    for sample in result.samples:
        predictions.append(predict(machine, setting, [answer_of(one) for one in sample.completions]))
        measured_s += sample.decode_s
        decoded.done.extend(sample.completions)
    tokens = sum(each.tokens for each in predictions)
    steps = decoded.steps(block_size)
    predicted, measured = tokens / sum(each.seconds for each in predictions), tokens / measured_s
    return {
        "block_size": block_size,
        "method": name,
        **facts,
        "predicted_tokens_per_s": predicted,
        "measured_tokens_per_s": measured,
        "ratio": measured / predicted,
        "predicted_verifications_per_token": sum(each.rounds for each in predictions) / tokens,
        "measured_verifications_per_token": steps / tokens,
        "predicted_rows_per_verification": sum(each.target_rows for each in predictions)
        / sum(each.rounds for each in predictions),
        "measured_rows_per_verification": decoded.rows / steps,
        "bound": max(predictions, key=lambda each: each.seconds).bound,
    }


def markdown(report: dict[str, Any]) -> str:
    """Return the table of docs/capacity.md."""
    lines = [
        f"Draft and target {report['way']}, {report['threads']} thread(s) a model; {report['prompts']['learning']} "
        f"prompts to learn from, {report['prompts']['compared']} others compared. {report['within']} of "
        f"{len(report['rows'])} settings are within {100 * (TARGET_RATIO - 1):.0f} %.",
        "",
        "| B | method | lookahead | batch | tokens/s: predicted | measured | ratio | verifications a token: predicted "
        "| measured | rows of one: predicted | measured | bounded by |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['block_size']} | {row['method']} | {row['lookahead']} | {row['batch']} "
        f"| {row['predicted_tokens_per_s']:.0f} | {row['measured_tokens_per_s']:.0f} | {row['ratio']:.2f} "
        f"| {row['predicted_verifications_per_token']:.3f} | {row['measured_verifications_per_token']:.3f} "
        f"| {row['predicted_rows_per_verification']:.1f} | {row['measured_rows_per_verification']:.1f} "
        f"| {row['bound']} |"
        for row in report["rows"]
    ]
    return "\n".join(lines)
