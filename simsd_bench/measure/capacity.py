"""Compares the capacity model with this machine: it measures forwards in process, predicts a server, and measures it.

The requests are held-out lists of questions. The load is a closed loop: each client sends its
next request when its last answer has arrived. So the number of running requests is known, and the queue is empty.
"""

import asyncio
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from simsd.eval.datasets import Item
from simsd.in_process import generate_all
from simsd.messages.request import DecodeParams, Request
from simsd.messages.round import Verdicts
from simsd.planning.capacity import Fitted, Load, Pair, Speculation
from simsd_bench.measure.pair import PairSpec
from simsd_bench.measure.prompts import family_items
from simsd_bench.measure.server import serving
from simsd_bench.measure.sweep import over_http, requests_for, sweep

BATCHES = (1, 2, 4, 8)
"""Sequences decoded together while forwards are measured."""
PER_CLIENT, WARM_UP = 4, 3


@dataclass(frozen=True)
class Measured:
    """The costs of both models' forwards, and what the requests were like on average."""

    target: Fitted
    draft: Fitted
    acceptance: float
    load: Load

    def pair(self, block_size: int, params: DecodeParams, overhead_s: float) -> Pair:
        resolved = params.resolve(block_size)
        speculation = Speculation(block_size, resolved.gamma, resolved.draft_steps, self.acceptance)
        return Pair(self.target, self.draft, speculation, overhead_s)


def measure(spec: PairSpec, block_size: int, asked: Sequence[Item], params: DecodeParams) -> Measured:
    """Decode in this process in batches of several sizes, and fit a line to the calls of each model."""
    target: list[tuple[int, int, float]] = []
    draft: list[tuple[int, int, float]] = []

    def see(began: float, verdicts: Verdicts) -> None:
        if verdicts.target_forwards:
            target.append((verdicts.target_forwards, verdicts.target_rows, verdicts.target_s))
        if verdicts.draft_forwards:
            draft.append((verdicts.draft_forwards, verdicts.draft_rows, verdicts.draft_s))

    loop = spec.loop(block_size, max(BATCHES))
    ids = [loop.tokenizer.encode_messages(item.messages, tools=item.tools) for item in asked]
    generate_all(loop, [Request("warm", ids[0], params)])
    loop.on_round = see
    found = []
    for number, batch in enumerate(_shares(ids, len(BATCHES))):
        for start in range(0, len(batch), BATCHES[number]):
            together = batch[start : start + BATCHES[number]]
            found += generate_all(
                loop, [Request(f"{number}-{start}-{i}", one, params) for i, one in enumerate(together)]
            )
    stats = [completion.stats for completion in found]
    accepted, recovered = sum(s.accepted for s in stats), sum(s.recovered for s in stats)
    load = Load(
        rate=0.0,
        prompt_tokens=round(statistics.mean(s.prompt_tokens for s in stats)),
        answer_tokens=round(statistics.mean(s.completion_tokens for s in stats)),
        cached_tokens=round(statistics.mean(s.cached_tokens for s in stats)),
    )
    return Measured(Fitted.to(target), Fitted.to(draft), accepted / (accepted + recovered), load)


def _shares(ids: list[list[int]], parts: int) -> Iterator[list[list[int]]]:
    """Split the prompts into equal parts."""
    size = len(ids) // parts
    return (ids[i * size : (i + 1) * size] for i in range(parts))


def check(
    spec: PairSpec,
    block_size: int,
    params: DecodeParams,
    clients: Sequence[int],
    overhead_s: float,
    note: Callable[[str], object],
) -> dict[str, Any]:
    """Return predicted and measured figures for each number of clients. The server is sent no prompt twice."""
    sizes = [requests_for(count, PER_CLIENT * count + 16) for count in clients]
    for_costs = sum(BATCHES) * 2
    asked = family_items(["lists"], for_costs + sum(sizes), seed=13)
    note(f"measuring forwards in process, {for_costs} requests")
    measured = measure(spec, block_size, asked[:for_costs], params)
    pair = measured.pair(block_size, params, overhead_s)
    rows, first = [], for_costs
    with serving(spec, block_size, max(clients)) as server:
        connect = over_http(server.url)
        asyncio.run(sweep(connect, asked[:WARM_UP], params, 1))
        for count, size in zip(clients, sizes, strict=True):
            note(f"{count} at a time over HTTP, {size} requests")
            answers, wall_s = asyncio.run(sweep(connect, asked[first : first + size], params, count))
            first += size
            rows.append(
                {
                    "clients": count,
                    "requests": size,
                    "predicted_tokens_per_s": pair.requests_per_s(count, measured.load) * measured.load.answer_tokens,
                    "measured_tokens_per_s": sum(answer.tokens for answer in answers) / wall_s,
                    "predicted_request_s": pair.request_s(count, measured.load),
                    "measured_request_s": statistics.mean(answer.total_s for answer in answers),
                    "predicted_first_token_s": pair.first_token_s(count, measured.load),
                    "measured_first_token_s": statistics.mean(answer.first_s for answer in answers),
                }
            )
    return {
        "block_size": block_size,
        "gamma": pair.speculation.gamma,
        "draft_steps": pair.speculation.draft_steps,
        "threads": spec.threads,
        "target": measured.target,
        "draft": measured.draft,
        "acceptance": measured.acceptance,
        "load": measured.load,
        "tokens_per_round": pair.speculation.tokens_per_round,
        "overhead_s": overhead_s,
        "rows": rows,
    }


def markdown(report: dict[str, Any]) -> str:
    """Return the table of docs/capacity.md."""
    load, target, draft = report["load"], report["target"], report["draft"]
    lines = [
        f"B = {report['block_size']}, gamma {report['gamma']}, draft_steps {report['draft_steps']}, "
        f"{report['threads']} thread(s) a model. Measured in process: target {1e3 * target.forward_s:.2f} ms a forward "
        f"and {1e6 * target.row_s:.0f} µs a row, draft {1e3 * draft.forward_s:.2f} ms and {1e6 * draft.row_s:.0f} µs; "
        f"acceptance {report['acceptance']:.3f}; {load.prompt_tokens} prompt tokens, {load.cached_tokens} of them "
        f"cached, {load.answer_tokens} answer tokens. Assumed: {1e3 * report['overhead_s']:.1f} ms a round on top.",
        "",
        "| clients | requests | tokens/s: predicted | measured | ratio | request, s: predicted | measured "
        "| first token, s: predicted | measured |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in report["rows"]:
        speed = row["predicted_tokens_per_s"], row["measured_tokens_per_s"]
        lines.append(
            f"| {row['clients']} | {row['requests']} | {speed[0]:.0f} | {speed[1]:.0f} | {speed[1] / speed[0]:.2f} "
            f"| {row['predicted_request_s']:.3f} | {row['measured_request_s']:.3f} "
            f"| {row['predicted_first_token_s']:.3f} | {row['measured_first_token_s']:.3f} |"
        )
    return "\n".join(lines)
