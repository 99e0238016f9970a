"""Small pieces around the functions of simsd.decoding, as its modules put them together: what tests of them share."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from simsd.decoding.draft import Q, draw
from simsd.decoding.reading import Answer, Question, read, rows_of
from simsd.decoding.sampling import RowParams, filtered_log_probs, log_probs_at_temperature
from simsd.messages.round import DraftedBlock
from simsd.messages.worker import WorkerInfo
from simsd.verification.accept import Scores
from simsd.verification.schemes import Want


def info_of(**changes: Any) -> WorkerInfo:
    """A worker with blocks of 4 of which only the named facts matter."""
    facts: dict[str, Any] = {
        "role": "target",
        "model": "m",
        "weights_hash": "",
        "architecture": "a",
        "vocab_size": 100,
        "tokenizer_hash": "t",
        "mask_token_id": 3,
        "block_size": 4,
        "eos_token_ids": (),
        "max_model_len": 64,
        "page_size": 16,
        "pages": 4,
        "max_rows": 256,
        "device": "cpu",
        "dtype": "float32",
    }
    return WorkerInfo(**(facts | changes))


def log_probs_of(logits: Tensor, wants: list[Want]) -> Tensor:
    """Filtered by each row's settings."""
    return filtered_log_probs(model_log_probs_of(logits, wants), _filters(logits, wants))


def model_log_probs_of(logits: Tensor, wants: list[Want]) -> Tensor:
    """At each row's temperature, before the filters."""
    return log_probs_at_temperature(logits, _filters(logits, wants))


def _filters(logits: Tensor, wants: list[Want]) -> dict[str, Tensor]:
    filters = RowParams(wants).filters(logits.shape[1])
    return {name: torch.from_numpy(each) for name, each in filters.items()}


def sample(log_probs: Tensor, wants: list[Want]) -> Tensor:
    """One token a row: the best one at temperature 0, else a draw with the row's own noise."""
    return torch.tensor(score(log_probs, wants).token)


def score(log_probs: Tensor, wants: list[Want]) -> Scores:
    """What the rules read of rows whose distributions these are."""
    warm = rows_of([row for row, (p, _, _) in enumerate(wants) if p.temperature > 0])
    return ask(
        log_probs, wants, Question([], warm, rows_of([]), 0, entropy=any(p.remasking == "entropy" for p, _, _ in wants))
    ).scores


def stacked(q: list[Q]) -> tuple[Tensor, Tensor]:
    """The token ids and probabilities of distributions over equally many tokens."""
    return torch.tensor(np.stack([ids for ids, _ in q])), torch.tensor(np.stack([probs for _, probs in q]))


def drafted(log_q: Tensor, wants: list[Want]) -> tuple[Tensor, list[Q]]:
    """A token of each row's q, and each q; `wants` say how many of the likeliest tokens it has."""
    rows = list(range(len(wants)))
    answer = ask(log_q, wants, Question([], rows_of([]), rows_of(rows), max(p.draft_top_k for p, _, _ in wants)))
    q = draw(answer)
    return torch.tensor(answer.scores.token), [q[row] for row in rows]


def rejected_or_not(
    log_p: Tensor, wants: list[Want], tokens: Tensor, q_ids: Tensor, q: Tensor
) -> tuple[Tensor, Tensor]:
    """Rejection sampling's test of every row: (whether the token stands, what would replace it)."""
    rows, none = rows_of(list(range(len(wants)))), rows_of([])
    block = DraftedBlock(list(range(len(wants))), tokens.tolist(), [1.0] * len(wants), q_ids.numpy(), q.numpy())
    answer = ask(log_p, wants, Question([], none, none, 0, tested=rows, drafted=[block]))
    return torch.tensor(answer.stands), torch.tensor(answer.instead)


def ask(log_probs: Tensor, wants: list[Want], question: Question) -> Answer:
    """Read rows that have these log-probabilities, and a last token, the mask, which is impossible."""
    mask = log_probs.shape[1]
    logits = torch.cat((log_probs, torch.zeros(len(log_probs), 1)), dim=1)
    return read(logits, wants, question, info_of(mask_token_id=mask))
