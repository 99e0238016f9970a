"""The first figures as Markdown."""

from typing import Any


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def first_markdown(report: dict[str, Any], command: str) -> str:
    """docs/results/first.md from what `simsd.bench.first.run` measured."""
    m, asked = report["machine"], report["questions"]
    lines = [
        "# First figures",
        "",
        f"From one command, `{command}`, on {m['date']}: {m['cores']} cores of {m['cpu']}, {m['threads']} torch "
        f"thread(s) a model, Python {m['python']}, torch {m['torch']}, transformers {m['transformers']}, "
        f"commit {m['commit']}. Pair: target `{report['pair']['target']}`, "
        f"draft `{report['pair']['draft']}`, fp32, no GPU.",
        "",
        "Tokens/s is answer tokens over decode time, prefill excluded, batch 1, greedy, EOS on, at most 128 tokens, 3 "
        f"warm-up prompts dropped; {asked['methods']} held-out prompts of {', '.join(asked['families'])}. Each prompt "
        "is decoded by every method before the next one comes; *ratio* is the median over prompts of the tokens/s over "
        "vanilla static's on the same prompt, with its quartiles. *Acceptance* is drafted tokens that stood over those "
        "that were judged. *Tokens a target call* counts prefill calls too. Accuracy is over the same prompts, with a "
        f"95 % interval. Over HTTP ({asked['http']} prompts, one at a time): tokens over the decode time that the "
        "server reports, and tokens over the client's wall time, prefill, queue and HTTP included. On a shared "
        "machine read the ratios, which are of times taken seconds apart; the HTTP columns are of one method after "
        "the other.",
        "",
        "| B | method | tokens/s | ratio | acceptance | tokens a target call | draft calls a token | accuracy "
        "| HTTP: decode | HTTP: client |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['block_size']} | {row['method']} | {row['tokens_per_s']:.0f} | {row['ratio']:.2f} "
        f"({row['ratio_low']:.2f}-{row['ratio_high']:.2f}) | {_number(row['acceptance'], 3)} "
        f"| {row['tokens_per_target_forward']:.2f} | {row['draft_forwards_per_token']:.2f} "
        f"| {row['accuracy']:.3f} ({row['accuracy_low']:.3f}-{row['accuracy_high']:.3f}) "
        f"| {_number(row['http_decode_tokens_per_s'], 0)} | {_number(row['http_tokens_per_s'], 0)} |"
        for row in report["rows"]
    ]
    for block_size, sweep in report["sweep"].items():
        best = max(sweep[1:], key=lambda row: row["ratio"])
        lines += [
            "",
            f"## simsd, B = {block_size}: gamma and draft_steps",
            "",
            f"Best here: **{best['setting']}**, {best['ratio']:.2f} times vanilla static ({asked['sweep']} prompts, "
            "other ones than above, so the choice is not made on what it is judged by).",
            "",
            "| setting | tokens/s | ratio | acceptance | tokens a target call |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {row['setting']} | {row['tokens_per_s']:.0f} | {row['ratio']:.2f} ({row['ratio_low']:.2f}-"
            f"{row['ratio_high']:.2f}) | {_number(row['acceptance'], 3)} | {row['tokens_per_target_forward']:.2f} |"
            for row in sweep
        ]
    lines += [
        "",
        "Vanilla dynamic reveals every position above its threshold at once; on this easy pair it is a strong "
        "baseline, and its row stands as measured. `exact` gives vanilla static's very text; its row budget is "
        "the default.",
        "",
    ]
    return "\n".join(lines)
