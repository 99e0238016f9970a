"""The paper's own figures (arXiv 2606.02544)."""

from typing import Any

FAMILY_OF = {"GSM8K": "math", "TriviaQA": "trivia", "MBPP": "code", "MMLU": "choice"}
"""The paper's data sets -> our family of the same kind."""
PUBLISHED_SPEED: dict[int, list[tuple[str, tuple[float, ...], float, float | None]]] = {
    4: [
        ("vanilla, TP=2, no CUDA graph", (10.0, 11.4, 11.4, 5.59), 9.6, 0.696),
        ("vanilla + CUDA graph", (50.1, 50.5, 50.7, 56.04), 51.8, 0.696),
        ("S2D2", (54.8, 28.3, 47.7, 32.3), 40.8, None),
        ("SimSD", (72.6, 73.3, 72.2, 68.4), 71.6, 0.713),
    ],
    8: [
        ("vanilla, TP=2, no CUDA graph", (15.3, 20.4, 18.7, 6.21), 15.2, 0.681),
        ("vanilla + CUDA graph", (30.9, 31.9, 30.4, 36.8), 32.5, 0.681),
        ("S2D2", (57.6, 30.0, 50.2, 28.0), 41.5, None),
        ("SimSD", (74.1, 88.3, 80.4, 84.4), 81.8, 0.698),
    ],
}
"""B -> (system, tokens/s on each data set, their mean, mean accuracy); SDAR-1.7B drafts for SDAR-8B (section 4)."""
GRAPH = 1
"""Index of the paper's fair baseline."""
PUBLISHED_ROPE: list[dict[str, Any]] = [
    {"line": "aligned", "accuracy": 0.84, "acceptance": 0.902, "block": 3.61, "kl": None},
    {"line": "not aligned", "accuracy": 0.0, "acceptance": 0.718, "block": 2.87, "kl": 7.12},
]
"""Position ids on GSM8K at B = 4; `block` is the number of accepted tokens a block."""
PUBLISHED_GAMMA: list[dict[str, Any]] = [
    {"gamma": 3, "accuracy": 0.50, "tokens_per_s": 55.1, "acceptance": 0.834, "block": 4.54, "block_ms": 90},
    {"gamma": 4, "accuracy": 0.54, "tokens_per_s": 74.4, "acceptance": 0.887, "block": 4.93, "block_ms": 71},
    {"gamma": 6, "accuracy": 0.70, "tokens_per_s": 62.9, "acceptance": 0.933, "block": 5.31, "block_ms": 89},
    {"gamma": 8, "accuracy": 0.82, "tokens_per_s": 58.7, "acceptance": 0.964, "block": 6.18, "block_ms": 109},
]
"""gamma on GSM8K at B = 8."""
PUBLISHED_TOP1 = {"self-draft": 0.975, "draft/target": 0.94}
"""Drafter -> the least top-1 agreement of one pass with sequential denoising."""
