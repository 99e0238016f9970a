"""Small pieces around the functions of simsd.decoding, as its modules put them together: what tests of them share."""

from typing import Any

import torch
from torch import Tensor

from simsd.decoding.draft import propose_tokens
from simsd.decoding.noise import ACCEPT, DRAFT, RECOVER, SAMPLE, first_uniform, gumbel_argmax, keys_of
from simsd.decoding.reading import Question, read, rows_of
from simsd.decoding.rejection import accepted, residual
from simsd.decoding.sampling import RowParams, filtered_log_probs
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
    filters = RowParams(wants).filters(logits.shape[1])
    return filtered_log_probs(logits, {name: torch.from_numpy(each) for name, each in filters.items()})


def sample(log_probs: Tensor, wants: list[Want], purpose: int = SAMPLE) -> Tensor:
    """One token a row: the best one at temperature 0, else a draw with the row's own noise."""
    params, token = RowParams(wants), log_probs.argmax(dim=-1)
    warm = params.warm.nonzero()[0]
    keys = torch.from_numpy(keys_of(params, purpose, warm))
    token[warm] = gumbel_argmax(log_probs[warm], keys)
    return token


def score(log_probs: Tensor, wants: list[Want]) -> Scores:
    """What the rules read of rows whose distributions these are; token 0 of `log_probs` stands for the mask."""
    warm = rows_of([row for row, (p, _, _) in enumerate(wants) if p.temperature > 0])
    question = Question([], warm, rows_of([]), 0, entropy=any(p.remasking == "entropy" for p, _, _ in wants))
    return read(log_probs.clone(), wants, question, info_of(mask_token_id=0)).scores


def drafted(log_q: Tensor, wants: list[Want], draft_top_k: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """A token of each row's q, and q as ids and probabilities."""
    params = RowParams(wants)
    top, ids = log_q.topk(min(max(draft_top_k), log_q.shape[1]), dim=-1)
    keys = keys_of(params, DRAFT, torch.arange(len(wants)).numpy())
    tokens, q = propose_tokens(top, ids, torch.from_numpy(keys), torch.tensor(draft_top_k))
    return tokens, ids, q


def rejected_or_not(
    log_p: Tensor, wants: list[Want], tokens: Tensor, q_ids: Tensor, q: Tensor
) -> tuple[Tensor, Tensor]:
    """Rejection sampling's test of every row: (whether the token stands, what would replace it)."""
    params, every = RowParams(wants), torch.arange(len(wants)).numpy()
    p_drafted, rest = residual(log_p, tokens, q_ids, -q)
    instead = gumbel_argmax(rest, torch.from_numpy(keys_of(params, RECOVER, every)))
    replacement = rest.gather(1, instead.unsqueeze(1)).squeeze(1)
    parts = (each.numpy() for each in (tokens, q_ids, -q, p_drafted, replacement))
    return torch.from_numpy(accepted(first_uniform(keys_of(params, ACCEPT, every)), *parts)), instead
