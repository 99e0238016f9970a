"""Reading the logits of a whole batch at once, with one copy to the device and one back."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simsd.decoding.noise import ACCEPT, RECOVER, SAMPLE, first_uniform, gumbel_argmax, keys_of
from simsd.decoding.rejection import accepted, residual
from simsd.decoding.sampling import (
    RowParams,
    adjust,
    adjustments,
    entropies,
    filtered_log_probs,
    log_probs_at_temperature,
)
from simsd.forward.transfer import there_and_back
from simsd.messages.request import TokenLogprob
from simsd.messages.round import DraftedBlock, Work
from simsd.messages.worker import WorkerInfo
from simsd.verification.accept import Scores
from simsd.verification.schemes import Want

RowNumbers = NDArray[np.int64]


def rows_of(rows: list[int]) -> RowNumbers:
    return np.array(rows, np.int64)


@dataclass(slots=True)
class Question:
    """What the rules of a batch ask of its M logits rows, which are named by their indices.

    owners: each sequence's work, and the rows that belong to it.
    sampled: rows whose token is sampled. likeliest: rows whose `width` likeliest tokens are needed.
    tested: rows in which rejection sampling tests the tokens of `drafted`, in the same order.
    entropy, likeliest_entropy: whether the entropies of all rows, or of the rows `likeliest`, are needed. margin:
    whether the two highest probabilities of the rows `likeliest` are.
    reported: rows of requests that report log-probabilities, with `alternatives` for each.
    known: [M], the token that each row tests or shows; -1 for rows that were given none.
    """

    owners: list[tuple[Work, range]]
    sampled: RowNumbers
    likeliest: RowNumbers
    width: int
    tested: RowNumbers = field(default_factory=lambda: rows_of([]))
    drafted: list[DraftedBlock] = field(default_factory=list)
    entropy: bool = False
    likeliest_entropy: bool = False
    margin: bool = False
    reported: RowNumbers = field(default_factory=lambda: rows_of([]))
    alternatives: int = 0
    known: RowNumbers = field(default_factory=lambda: rows_of([]))


@dataclass(slots=True)
class Answer:
    """The answers to a `Question`, on the host.

    top, ids: [likeliest rows, width], log-probabilities after the filters, best first, and their token ids. best_two:
    [likeliest rows, 2], the highest log-probabilities before them. entropy: of the same rows, in nats, if it was asked
    for. place: the index of each of these rows in them, by its logits row.
    stands, instead: for each tested token, whether it stands, and the token that replaces it if not.
    params, scores, logprobs: of all rows. vocabulary: its size V.
    """

    params: RowParams
    scores: Scores
    top: Tensor
    ids: Tensor
    best_two: Tensor
    entropy: list[float]
    place: dict[int, int]
    stands: list[bool]
    instead: list[int]
    logprobs: "Logprobs"
    vocabulary: int


@dataclass(slots=True)
class Logprobs:
    """Log-probabilities of the model's own distribution, for the rows that are reported.

    place: the index of each logits row in the other fields, which are [reported rows, ...] each.
    tokens, own: the tokens that the row may reveal, and their log-probabilities. top, ids: the log-probabilities of the
    likeliest tokens, best first, and their ids.
    """

    place: dict[int, int]
    tokens: list[list[int]]
    own: list[list[float]]
    top: list[list[float]]
    ids: list[list[int]]

    def of(self, row: int, token: int, alternatives: int) -> TokenLogprob:
        i = self.place[row]
        logprob = self.own[i][self.tokens[i].index(token)]
        return TokenLogprob(logprob, list(zip(self.ids[i][:alternatives], self.top[i][:alternatives], strict=True)))


def read(logits: Tensor, wants: list[Want], question: Question, info: WorkerInfo) -> Answer:
    """Answer a question about logits [M, V], which are changed in place. `wants` has an entry for each row."""
    assert logits.ndim == 2 and len(logits) == len(wants)
    params, tested = RowParams(wants), question.tested
    arrays = params.filters(logits.shape[1]) | adjustments(question.owners, wants, info.eos_token_ids)
    keys = [keys_of(params, SAMPLE, question.sampled), keys_of(params, RECOVER, tested)]
    uniform = first_uniform(keys_of(params, ACCEPT, tested)) if len(tested) else np.empty(0)
    arrays |= _indices(question, np.concatenate(keys))
    all_drawn = bool(params.warm.all()) and "top_k" not in arrays and len(question.likeliest) == len(logits)

    def compute(sent: dict[str, Tensor]) -> dict[str, Tensor]:
        adjust(logits, info.mask_token_id, sent)
        return _read_on_device(logits, log_probs_at_temperature(logits, sent), question, sent, all_drawn)

    back = there_and_back(arrays, logits.device, compute)
    if all_drawn:
        back["top"], back["best"] = back["likeliest_top"][:, 0], back["likeliest_ids"][:, 0]
    count = len(question.sampled)
    stands: list[bool] = []
    if len(tested):
        p_drafted, replacement = back["p_drafted"].numpy(), back["picked"][count:].numpy()
        drafted, q_ids, minus_q = (arrays[name] for name in ("drafted", "q_ids", "minus_q"))
        stands = accepted(uniform, drafted, q_ids, minus_q, p_drafted, replacement).tolist()
    return Answer(
        params,
        _scores(back, question.sampled),
        back.get("likeliest_top", torch.empty(0, 0)),
        back.get("likeliest_ids", torch.empty(0, 0, dtype=torch.int64)),
        back["best_two"] if "best_two" in back else back.get("likeliest_top", torch.empty(0, 0))[:, :2],
        _list(back, "likeliest_entropy"),
        {row: place for place, row in enumerate(question.likeliest.tolist())},
        stands,
        back["picks"][count:].tolist() if len(tested) else [],
        Logprobs(
            {row: place for place, row in enumerate(question.reported.tolist())},
            *(_list(back, f"reported_{name}") for name in ("tokens", "own", "top", "ids")),
        ),
        logits.shape[1],
    )


def _indices(question: Question, keys: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return the arrays of the question that the device needs, beside the rows' settings."""
    arrays: dict[str, NDArray[Any]] = {}
    if len(keys):
        arrays |= {"sampled": question.sampled, "keys": keys}
    if len(question.tested):
        count, width = len(question.tested), max(block.q_ids.shape[1] for block in question.drafted)
        q_ids, minus_q = np.zeros((count, width), np.int64), np.zeros((count, width), np.float32)
        first = 0
        for block in question.drafted:
            rows, k = block.q_ids.shape
            q_ids[first : first + rows, :k], minus_q[first : first + rows, :k] = block.q_ids, -block.q_probs
            first += rows
        tokens = rows_of([token for block in question.drafted for token in block.tokens])
        arrays |= {"tested": question.tested, "drafted": tokens, "q_ids": q_ids, "minus_q": minus_q}
    if len(question.likeliest):
        arrays["likeliest"] = question.likeliest
    if len(question.reported):
        arrays |= {"reported": question.reported, "known": question.known}
    return arrays


def _read_on_device(
    logits: Tensor, model: Tensor, question: Question, sent: dict[str, Tensor], all_drawn: bool
) -> dict[str, Tensor]:
    """Compute the answers on the device. Tokens are drawn after the filters; confidence and entropy are before them.

    model: [M, V], the model's log-probabilities after temperature. all_drawn: whether a token is drawn in every row
    from its likeliest tokens, which then also show the best one.
    """
    found: dict[str, Tensor] = {}
    log_probs = filtered_log_probs(model, sent)
    filtered = log_probs is not model
    if len(question.likeliest):
        rows = _select(log_probs, question.likeliest, sent["likeliest"])
        found["likeliest_top"], found["likeliest_ids"] = rows.topk(min(question.width, rows.shape[1]), dim=-1)
        if filtered and (question.margin or question.likeliest_entropy):
            rows = _select(model, question.likeliest, sent["likeliest"])
        if filtered and question.margin:
            found["best_two"] = rows.topk(2, dim=-1).values
        if question.likeliest_entropy:
            found["likeliest_entropy"] = entropies(rows)
    if len(question.reported) or (not all_drawn and len(question.tested) < len(logits)):
        found["top"], found["best"] = model.max(dim=-1)
    weights = []
    if len(question.tested):
        log_p = _select(log_probs, question.tested, sent["tested"])
        found["p_drafted"], rest = residual(log_p, sent["drafted"], sent["q_ids"], sent["minus_q"])
        weights.append(rest)
    if len(question.sampled):
        weights.insert(0, _select(log_probs, question.sampled, sent["sampled"]))
    if weights:
        together = torch.cat(weights) if len(weights) > 1 else weights[0]
        found["picks"] = gumbel_argmax(together, sent["keys"])
        found["picked"] = together.gather(1, found["picks"].unsqueeze(1)).squeeze(1)
        if filtered and len(question.sampled):
            found["confidence"] = model[sent["sampled"], found["picks"][: len(question.sampled)]]
    if question.entropy:
        found["entropy"] = entropies(model)
    if len(question.reported):
        found |= _reported(logits, question, found, sent)
    return found


def _reported(
    logits: Tensor, question: Question, found: dict[str, Tensor], sent: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Return the log-probabilities of the reported rows, before temperature and filters."""
    count, token = len(question.sampled), found["best"].clone()
    if count:
        token[sent["sampled"]] = found["picks"][:count]
    known, recovered = torch.where(sent["known"] < 0, token, sent["known"]), token.clone()
    if len(question.tested):
        recovered[sent["tested"]] = found["picks"][count:]
    tokens = torch.stack((token, known, recovered), dim=1)[sent["reported"]]
    log_probs = logits[sent["reported"]].log_softmax(dim=-1)
    top, ids = log_probs.topk(question.alternatives, dim=-1)
    own = log_probs.gather(1, tokens)
    return {"reported_tokens": tokens, "reported_own": own, "reported_top": top, "reported_ids": ids}


def _scores(back: dict[str, Tensor], sampled: RowNumbers) -> Scores:
    """Return the scores of all rows. They are empty if every row only tests a drafted token."""
    if "top" not in back:
        return Scores([], [], [], [])
    top = back["top"].exp().tolist()
    token, confidence = back["best"].tolist(), list(top)
    if len(sampled):
        chances = back.get("confidence", back["picked"])[: len(sampled)].exp().tolist()
        for row, pick, chance in zip(sampled.tolist(), back["picks"].tolist(), chances, strict=False):
            token[row], confidence[row] = pick, chance
    return Scores(token, confidence, top, _list(back, "entropy"))


def _select(values: Tensor, rows: RowNumbers, sent: Tensor) -> Tensor:
    """Return `rows` of values [M, ...], without a copy if they are all rows in order. sent: `rows` on the device."""
    every = len(rows) == len(values) and bool((np.diff(rows) == 1).all())
    return values if every else values[sent]


def _list(back: dict[str, Tensor], name: str) -> Any:
    return back[name].tolist() if name in back else []
