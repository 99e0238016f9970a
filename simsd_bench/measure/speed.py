"""Measures how fast the code itself is.

It is compared with plain transformers and with its arithmetic floor, as the batch grows and as the context grows, and
adaptive drafting is compared with the best fixed one. Decoding is greedy. Except in the last comparison, only the first
tokens of each answer are decoded, so that all sequences decode all the time. All settings of a measurement take turns
in each repeat.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from simsd.errors import InternalError
from simsd.eval.datasets import Item
from simsd.in_process import generate_all
from simsd.loop.loop import Loop
from simsd.messages.request import DecodeParams, Request
from simsd_bench.measure import engines, floor
from simsd_bench.measure.decode import Setting, Tick, measure
from simsd_bench.measure.methods import Protocol, methods
from simsd_bench.measure.pair import PairSpec
from simsd_bench.measure.ratios import ratio, spread
from simsd_bench.measure.rounds import Sizes, Window, decode_together, prompts_of, workers
from simsd_bench.measure.transformers_loop import PlainLoop, qwen3

MEASUREMENTS = ("baseline", "floor", "concurrency", "context", "regret", "engines")
Row = dict[str, Any]
Note = Callable[[str], Tick]


def run(
    spec: PairSpec,
    asked: Sequence[Item],
    block_sizes: Sequence[int],
    names: Sequence[str],
    sizes: Sizes,
    compiled: bool,
    note: Note,
) -> dict[str, Any]:
    """Run the measurements in `names`. All but baseline and regret use the first block size only."""
    size, sections = block_sizes[0], dict[str, list[Row]]()
    runners = ["eager", "graph"] + (["compile"] if compiled else [])
    for name in names:
        if name == "baseline":
            ours = [replace(spec, runner=runner) for runner in runners if runner != "graph"]
            sections[name] = [baseline(each, asked, b, sizes, note) for b in block_sizes for each in ours]
        elif name == "floor":
            sections[name] = floor.run(spec, asked, size, runners, sizes, note)
        elif name == "concurrency":
            sections[name] = concurrency(spec, asked, size, sizes, note)
        elif name == "context":
            sections[name] = context(spec, asked, size, sizes, note)
        elif name == "engines":
            if not spec.synthetic:
                sections[name] = engines.run(spec, asked, size, sizes, note)
        else:
            sections[name] = [row for b in block_sizes for row in regret(spec, asked, b, sizes, note)]
    settings = {
        "block_size": size,
        "tokens": sizes.tokens,
        "engine_tokens": sizes.engine_tokens,
        "repeats": sizes.repeats,
        "alone": sizes.alone,
    }
    return {"kind": "speed", "settings": settings, "sections": sections}


def baseline(spec: PairSpec, asked: Sequence[Item], block_size: int, sizes: Sizes, note: Note) -> Row:
    """Compare vanilla static with the plain loop, prompt by prompt; raises `InternalError` if their tokens differ."""
    loop = spec.loop(block_size)
    worker = workers(loop)[0]
    prompts = prompts_of(loop, asked, len(asked))
    longest = max(map(len, prompts)) + sizes.tokens + block_size
    plain = PlainLoop(qwen3(worker.model), block_size, worker.info.mask_token_id, longest)
    note(f"baseline, B={block_size}, runner {spec.runner}: {len(prompts)} prompts")
    pairs = []
    for index, prompt in enumerate([*prompts[: sizes.warm_up], *prompts]):
        new = sizes.tokens + -(len(prompt) + sizes.tokens) % block_size  # so that the last block is whole
        pairs.append(_both(loop, plain, prompt, new, plain_first=index % 2 == 0))
    ours, theirs = zip(*pairs[sizes.warm_up :], strict=True)
    return {
        "block_size": block_size,
        "runner": spec.runner,
        "prompts": len(ours),
        **spread("plain_tokens_per_s", theirs),
        **spread("tokens_per_s", ours),
        **ratio("ratio", ours, theirs),
    }


def _both(loop: Loop, plain: PlainLoop, prompt: list[int], new: int, plain_first: bool) -> tuple[float, float]:
    """Return tokens/s of our loop and of the plain one."""
    request = Request("one", prompt, DecodeParams(method="vanilla", max_tokens=new, ignore_eos=True))
    theirs = plain.decode(prompt, new) if plain_first else None
    (ours,) = generate_all(loop, [request])
    tokens, seconds = theirs or plain.decode(prompt, new)
    if tokens != ours.token_ids:
        raise InternalError(f"vanilla and the plain loop differ: {ours.token_ids} and {tokens} after {prompt}")
    return new / ours.stats.decode_s, new / seconds


def concurrency(spec: PairSpec, asked: Sequence[Item], block_size: int, sizes: Sizes, note: Note) -> list[Row]:
    """Return tokens/s for each number of sequences, and its ratios to one sequence and to vanilla at that number."""
    levels, named = (
        sizes.concurrencies,
        methods(block_size, Protocol(sizes.tokens, random_weights=spec.random_weights is not None)),
    )
    names = [name for name in ("vanilla-static", "simsd", "exact", "simsd-adaptive") if name in named]
    loop = spec.loop(block_size, max(levels))
    prompts = prompts_of(loop, asked, max(*levels, sizes.alone))
    lines = [(level, name) for level in levels for name in names]
    found: dict[tuple[int, str], list[Window]] = {line: [] for line in lines}
    tick = note(f"concurrency: {len(names)} methods, {', '.join(map(str, levels))} at a time")
    for repeat in range(1 + sizes.repeats):
        for level, name in _from(repeat, lines):
            alone = range(0, max(level, sizes.alone), level)
            windows = [decode_together(loop, prompts[first : first + level], named[name]) for first in alone]
            if repeat:  # the first pass warms up
                found[level, name].append(Window.sum(windows))
            tick()
    speeds = {line: [window.tokens_per_s for window in windows] for line, windows in found.items()}
    return [
        {
            "concurrency": level,
            "method": name,
            **spread("tokens_per_s", speeds[level, name]),
            **ratio("over_one", speeds[level, name], speeds[levels[0], name]),
            **ratio("over_vanilla", speeds[level, name], speeds[level, names[0]]),
            "acceptance": Window.sum(found[level, name]).acceptance,
        }
        for level, name in lines
    ]


def context(spec: PairSpec, asked: Sequence[Item], block_size: int, sizes: Sizes, note: Note) -> list[Row]:
    """Return milliseconds a forward and a block for each length of context, made of prompts one after the other."""
    named = methods(block_size, Protocol(sizes.tokens, random_weights=spec.random_weights is not None))
    loop = spec.loop(block_size)
    info = loop.target.info
    lines = [
        (length, name)
        for length in sizes.contexts
        for name in ("vanilla-static", "simsd")
        if length <= info.max_model_len
    ]
    found: dict[tuple[int, str], list[Window]] = {line: [] for line in lines}
    tick = note(f"context: {', '.join(map(str, sizes.contexts))} tokens")
    for repeat in range(1 + sizes.repeats):
        for length, name in _from(repeat, lines):
            text = [token for prompt in prompts_of(loop, asked[repeat:], length) for token in prompt]
            window = decode_together(loop, [text[sizes.tokens - length :]], named[name])
            if repeat:
                found[length, name].append(window)
            tick()
    return [{"context": length, "method": name} | _costs(found[length, name], block_size) for length, name in lines]


def _costs(windows: list[Window], block_size: int) -> Row:
    """Return the milliseconds of one sequence's forwards, rounds and blocks."""
    draft = [1000 * w.draft_s / w.draft_forwards for w in windows if w.draft_forwards]
    return {
        **spread("target_ms", [1000 * w.target_s / w.target_forwards for w in windows]),
        **(spread("draft_ms", draft) if draft else {}),
        **spread("round_ms", [1000 * w.seconds / w.rounds for w in windows]),
        **spread("block_ms", [1000 * w.seconds / w.revealed * block_size for w in windows]),
    }


def regret(spec: PairSpec, asked: Sequence[Item], block_size: int, sizes: Sizes, note: Note) -> list[Row]:
    """Compare fixed gamma and draft_steps with adaptive drafting on the same prompts; answers end at EOS."""
    named = methods(block_size, Protocol(random_weights=spec.random_weights is not None))
    loop = spec.loop(block_size)
    gammas = sorted({max(1, block_size * quarters // 4) for quarters in (2, 3, 4)})
    grid = [(gamma, steps) for gamma in gammas for steps in sorted({1, min(2, gamma), gamma})]
    fixed = [
        Setting(
            f"gamma {gamma}, {steps} steps",
            replace(named["simsd"], gamma=gamma, draft_steps=steps),
            loop,
            {"fixed": True, "gamma": gamma, "draft_steps": steps},
        )
        for gamma, steps in grid
    ]
    beside = [Setting(name, named[name], loop, {"fixed": False}) for name in ("simsd-adaptive", "vanilla-static")]
    tick = note(f"regret, B={block_size}: {len(fixed)} fixed settings over {len(asked)} prompts")
    results = measure(asked, [*beside, *fixed], warm_up=sizes.warm_up, tick=tick)
    return [result.row(block_size) for result in results]


def _from(turn: int, lines: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return all lines, beginning with another one at each turn."""
    first = turn % len(lines)
    return [*lines[first:], *lines[:first]]
