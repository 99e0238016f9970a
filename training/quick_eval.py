"""A plain check of a trained pair: greedy vanilla decoding, one token a step, questions of both held-out splits.

    python -m training.quick_eval --pair simsd/assets

It prints the accuracy of both models at B = 4 and 8, on each split, and how often the draft's best token is the
target's at the position that the target reveals. It shares no decoding code with the server, so the two can be
compared.
"""

import argparse
import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor
from tqdm import tqdm

from simsd.eval.families import FAMILIES, Question
from simsd.eval.score import FamilyScore, family_score, score
from simsd.models.loading import load_model
from simsd.models.model import BlockDiffusionModel
from training.tokenizer import END_OF_TEXT, IM_END, MASK, chat_prompt

EOS = (IM_END, END_OF_TEXT)


class CachedModel:
    """A model with the keys and values [layers, S, capacity, kv heads, D] of S sequences of different lengths."""

    def __init__(self, model: BlockDiffusionModel, sequences: int, capacity: int) -> None:
        config = model.config
        shape = (config.num_hidden_layers, sequences, capacity, config.num_key_value_heads, config.head_dim)
        self.model = model
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)

    def logits(self, live: Tensor, token_ids: Tensor, starts: Tensor, block_size: int) -> Tensor:
        """Return the logits [s, C, vocab] of whole blocks of C tokens in all.

        live [s]: indices of the sequences; token_ids [s, C]; starts [s]: position of each sequence's first token. Their
        keys and values overwrite the cache at these positions; attention is block-causal.
        """
        sequences, columns = token_ids.shape
        positions = starts[:, None] + torch.arange(columns)
        index = live[:, None]
        capacity = int(positions.max()) + 1
        seen = torch.arange(capacity) < ((positions // block_size + 1) * block_size)[:, :, None]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.keys[layer][index, positions] = k.view(sequences, columns, *k.shape[1:])
            self.values[layer][index, positions] = v.view(sequences, columns, *v.shape[1:])
            out = F.scaled_dot_product_attention(
                q.view(sequences, columns, *q.shape[1:]).transpose(1, 2),
                self.keys[layer][live, :capacity].transpose(1, 2),
                self.values[layer][live, :capacity].transpose(1, 2),
                attn_mask=seen[:, None],
                enable_gqa=True,
            )
            return out.transpose(1, 2).flatten(2).flatten(0, 1)

        hidden = self.model(token_ids.flatten(), positions.flatten(), attend)
        return self.model.logits(hidden).view(sequences, columns, -1)


@dataclass
class Tally:
    """How often the draft's best token was the target's, and how many reveals were compared."""

    same: int = 0
    compared: int = 0


@torch.inference_mode()
def answer(
    model: BlockDiffusionModel,
    prompts: list[list[int]],
    block_size: int,
    max_tokens: int,
    draft: BlockDiffusionModel | None = None,
    tally: Tally | None = None,
) -> list[list[int]]:
    """Return greedy answers to tokenised prompts, which reveal the surest open position first.

    With a draft, its tokens are compared, and counted in `tally`.
    """
    longest = max(len(p) for p in prompts)
    capacity = (longest + max_tokens + 2 * block_size) // block_size * block_size
    sequences = len(prompts)
    tokens = torch.full((sequences, capacity), MASK)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = torch.tensor(prompt)
    lengths = torch.tensor([len(p) for p in prompts])
    starts = lengths // block_size * block_size
    live = torch.arange(sequences)
    models = [CachedModel(m, sequences, capacity) for m in (model, draft) if m is not None]
    if int(starts.max()) > 0:
        # Shorter prompts are followed by masks here; their keys are overwritten when these blocks are decoded.
        for cached in models:
            cached.logits(live, tokens[:, : int(starts.max())], torch.zeros_like(starts), block_size)
    while len(live):
        columns = starts[live, None] + torch.arange(block_size)
        block = tokens[live[:, None], columns]
        while (block == MASK).any():
            logits = [cached.logits(live, block, starts[live], block_size) for cached in models]
            logits[0][:, :, MASK] = -torch.inf
            confidence, best = logits[0].softmax(-1).max(-1)
            opened = block == MASK
            place = confidence.masked_fill(~opened, -1).argmax(-1, keepdim=True)
            open_somewhere = opened.any(-1, keepdim=True)
            if tally is not None:
                guess = logits[1].argmax(-1)
                tally.same += int((guess.gather(1, place) == best.gather(1, place))[open_somewhere].sum())
                tally.compared += int(open_somewhere.sum())
            chosen = torch.where(open_somewhere, best.gather(1, place), block.gather(1, place))
            block = block.scatter(1, place, chosen)
        for cached in models:
            cached.logits(live, block, starts[live], block_size)
        tokens[live[:, None], columns] = block
        ended = torch.isin(block, torch.tensor(EOS)) & (columns >= lengths[live, None])
        starts[live] += block_size
        live = live[~ended.any(-1) & (starts + block_size <= capacity)[live] & (starts < lengths + max_tokens)[live]]
    return [_until_eos(row[length:].tolist()) for row, length in zip(tokens, lengths.tolist(), strict=True)]


def _until_eos(ids: list[int]) -> list[int]:
    end = next((i for i, token in enumerate(ids) if token in (*EOS, MASK)), len(ids))
    return ids[:end]


def batches(questions: list[Question], tokenizer: Tokenizer, size: int) -> list[tuple[list[Question], list[list[int]]]]:
    """Return batches of questions and their tokenised prompts, sorted by length."""
    pairs = [(q, tokenizer.encode(chat_prompt([("user", q.prompt)], q.tools)).ids) for q in questions]
    pairs.sort(key=lambda pair: len(pair[1]))
    chunks = [pairs[i : i + size] for i in range(0, len(pairs), size)]
    return [([q for q, _ in chunk], [ids for _, ids in chunk]) for chunk in chunks]


def examine(
    title: str,
    name: str,
    models: dict[str, BlockDiffusionModel],
    tokenizer: Tokenizer,
    questions: list[Question],
    block_size: int,
    max_tokens: int,
    show: int,
) -> dict[str, FamilyScore]:
    """Return one model's scores by family, and a target's agreement with its draft; prints `show` wrong answers."""
    draft = models.get("draft") if name == "target" else None
    tally = Tally() if draft else None
    asked, texts = [], []
    for some, prompts in tqdm(batches(questions, tokenizer, 100), desc=title, disable=None):
        asked += some
        texts += [tokenizer.decode(ids) for ids in answer(models[name], prompts, block_size, max_tokens, draft, tally)]
    result = score(asked, texts)
    if tally is not None:
        result["agreement with draft"] = family_score(tally.same, tally.compared)
    wrong = [(q, t) for q, t in zip(asked, texts, strict=True) if not FAMILIES[q.family].check(q, t)]
    for question, text in wrong[:show]:
        print(f"wrong: {question.prompt!r} -> {text!r}, not {question.answer!r}")
    return result


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.quick_eval", description=__doc__.split("\n\n")[0])
    parser.add_argument("--pair", type=Path, required=True, help="directory with target/ and draft/")
    parser.add_argument("--n", type=int, default=300, help="questions a family, at most")
    parser.add_argument("--splits", nargs="+", default=["heldout", "phrasing"], help="splits of the questions")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES), help="families to ask")
    parser.add_argument("--models", nargs="+", choices=("target", "draft"), default=["target", "draft"])
    parser.add_argument("--block-sizes", type=int, nargs="+", default=[4, 8], help="block sizes to decode with")
    parser.add_argument("--max-tokens", type=int, default=256, help="longest answer")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print for each model and block size")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    models = {name: load_model(args.pair / name) for name in args.models if (args.pair / name).is_dir()}
    tokenizer = Tokenizer.from_file(str(args.pair / args.models[0] / "tokenizer.json"))
    result: dict[str, dict[str, FamilyScore]] = {}
    for split, block_size, name in product(args.splits, args.block_sizes, models):
        questions = [q for family in args.families for q in FAMILIES[family].questions(split, args.n)]
        title = f"{name} B={block_size} {split}"
        result[title] = examine(title, name, models, tokenizer, questions, block_size, args.max_tokens, args.show)
        cells = (f"{key} {s.accuracy:.3f} [{s.low:.3f}, {s.high:.3f}] of {s.n}" for key, s in result[title].items())
        print(f"{title}: {'; '.join(cells)}", flush=True)
    if args.json:
        plain = {title: {name: vars(s) for name, s in families.items()} for title, families in result.items()}
        args.json.write_text(json.dumps(plain, indent=2) + "\n")


if __name__ == "__main__":
    main()
