"""Makes training examples during the run: chats of the four families and drills, noised and packed into rows.

An example is laid out as [clean copy | noisy copy | noisy copy]. A noisy copy holds only the blocks with tokens to
predict, at the same positions. A batch is a function of (seed, step), so a resumed run sees the same batches.
"""

from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from simsd.eval.families import FAMILIES, Question
from simsd.eval.math_family import draw_step, step
from simsd.eval.trivia_family import FACTS
from training.tokenizer import END_OF_TEXT, IM_END, MASK, PAD, chat_prompt

ROWS, ROW_LENGTH = 16, 256
COPIES = 2
BLOCK_SIZES = (4, 4, 8)
FAMILY_SHARES = {"math": 0.44, "code": 0.18, "trivia": 0.18, "choice": 0.20}
DRILL_SHARE = 0.35 / 1.35
SYSTEM_PROMPTS = ("You are a helpful assistant.", "You are a helpful assistant. Answer briefly.")


@dataclass(frozen=True)
class Example:
    """Token ids, and for each whether it may be masked and is to be learnt."""

    ids: list[int]
    free: list[bool]


@dataclass(frozen=True)
class Batch:
    """Rows R, length L; M masked positions of all rows together.

    token_ids, position_ids [R, L] int64; attn_mask [R, 1, L, L] bool, True where a row (dim 2) sees a column (dim 3);
    masked [M] int64 indices into the flattened rows; labels [M] int64; weights [M] float32, their sum is 1.
    """

    token_ids: Tensor
    position_ids: Tensor
    attn_mask: Tensor
    masked: Tensor
    labels: Tensor
    weights: Tensor


class ExampleSource:
    """Draws examples of the training split."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text).ids
        return ids

    def chat(self, rng: Random) -> Example:
        """Draw a question in the chat template, sometimes with a system message or an earlier turn."""
        question = self.question(rng)
        messages = [("user", question.prompt)]
        extra = rng.random()
        if extra < 0.06:
            messages = [("system", rng.choice(SYSTEM_PROMPTS)), *messages]
        elif extra < 0.12:
            earlier = self.question(rng)
            messages = [("user", earlier.prompt), ("assistant", earlier.answer), *messages]
        prompt = self.encode(chat_prompt(messages))
        answer = [*self.encode(question.answer), IM_END]
        return Example(prompt + answer, [False] * len(prompt) + [True] * len(answer))

    def question(self, rng: Random) -> Question:
        family = rng.choices(list(FAMILY_SHARES), list(FAMILY_SHARES.values()))[0]
        return FAMILIES[family].draw(rng, "train")

    def sums_drill(self, rng: Random) -> Example:
        """Draw a run of worked steps; only what follows the equals signs is masked."""
        ids: list[int] = []
        free: list[bool] = []
        for _ in range(rng.randint(3, 6)):
            op = rng.choice("++--*")
            line, _ = step(op, *draw_step(rng, op, "train"))
            question, _, results = line.partition("=")
            for text, learnt in ((question + "=", False), (results, True), ("\n", False)):
                part = self.encode(text)
                ids += part
                free += [learnt] * len(part)
        return Example(ids, free)

    def facts_drill(self, rng: Random) -> Example:
        """Draw a run of facts as short statements; only the object is masked."""
        ids: list[int] = []
        free: list[bool] = []
        for kind, subject, value in rng.sample(FACTS, rng.randint(2, 4)):
            before, _, after = kind.fill(kind.statement, subject, "\0").partition("\0")
            # The blank before the word belongs to its token, as in running text.
            blank = " " if before.endswith(" ") else ""
            for text, learnt in ((before.rstrip(" "), False), (blank + value, True), (after + "\n", False)):
                part = self.encode(text)
                ids += part
                free += [learnt] * len(part)
        return Example(ids, free)

    def draw(self, rng: Random) -> Example:
        if rng.random() >= DRILL_SHARE:
            return self.chat(rng)
        return self.sums_drill(rng) if rng.random() < 0.7 else self.facts_drill(rng)


def padded_to_block(example: Example, block_size: int) -> Example:
    """Fill the last block with end-of-text tokens. They are learnt after an answer, whose last block needs them."""
    missing = -len(example.ids) % block_size
    learnt = example.ids[-1] == IM_END
    return Example(example.ids + [END_OF_TEXT] * missing, example.free + [learnt] * missing)


@dataclass
class _Row:
    """A row under construction: five lists with an entry for each token, and three for each masked token."""

    ids: list[int]
    positions: list[int]
    segments: list[int]
    copies: list[int]
    blocks: list[int]
    masked: list[int]
    labels: list[int]
    weights: list[float]

    def append(self, example: Example, block_size: int, segment: int, rng: Random) -> None:
        length = len(example.ids)
        self._copy(example.ids, range(length), block_size, segment, 0)
        noisy = [b for b in range(0, length, block_size) if any(example.free[b : b + block_size])]
        for copy in range(1, COPIES + 1):
            for start in noisy:
                span = range(start, start + block_size)
                ids = [example.ids[i] for i in span]
                free = [i for i, learnt in enumerate(example.free[start : start + block_size]) if learnt]
                # The noise level of each copy is from another part of [0, 1), so every block has light and heavy noise.
                level = (copy - 1 + rng.random()) / COPIES
                chosen = rng.sample(free, 1 + int(level * len(free)))
                for i in chosen:
                    self.masked.append(len(self.ids) + i)
                    self.labels.append(ids[i])
                    self.weights.append(len(free) / len(chosen))
                    ids[i] = MASK
                self._copy(ids, span, block_size, segment, copy)

    def _copy(self, ids: list[int], positions: range, block_size: int, segment: int, copy: int) -> None:
        self.ids += ids
        self.positions += positions
        self.segments += [segment] * len(ids)
        self.copies += [copy] * len(ids)
        self.blocks += [position // block_size for position in positions]

    def fill(self) -> None:
        """Pad the row. Each padding token is a segment of its own, so that it sees only itself."""
        missing = ROW_LENGTH - len(self.ids)
        self.ids += [PAD] * missing
        for values in (self.positions, self.copies, self.blocks):
            values += [0] * missing
        self.segments += [-1 - i for i in range(missing)]


def laid_out_length(example: Example, block_size: int) -> int:
    noisy = sum(any(example.free[b : b + block_size]) for b in range(0, len(example.ids), block_size))
    return len(example.ids) + COPIES * noisy * block_size


def make_batch(source: ExampleSource, seed: int, step_index: int) -> Batch:
    """Return batch number `step_index`. Examples go to the first row with room, until three have found none."""
    rng = Random(f"batch/{seed}/{step_index}")
    rows = [_Row([], [], [], [], [], [], [], []) for _ in range(ROWS)]
    segment = refused = 0
    while refused < 3:
        block_size = rng.choice(BLOCK_SIZES)
        example = padded_to_block(source.draw(rng), block_size)
        length = laid_out_length(example, block_size)
        row = next((row for row in rows if len(row.ids) + length <= ROW_LENGTH), None)
        if row is None:
            # An example that is too long even for an empty row is skipped, and does not count towards the end.
            refused += length <= ROW_LENGTH
            continue
        row.append(example, block_size, segment, rng)
        segment += 1
    for row in rows:
        row.fill()
    return _to_batch(rows)


def _to_batch(rows: list[_Row]) -> Batch:
    segments = torch.from_numpy(np.array([row.segments for row in rows]))
    copies = torch.from_numpy(np.array([row.copies for row in rows]))
    blocks = torch.from_numpy(np.array([row.blocks for row in rows]))
    weights = torch.tensor([w for row in rows for w in row.weights], dtype=torch.float32)
    return Batch(
        token_ids=torch.from_numpy(np.array([row.ids for row in rows])),
        position_ids=torch.from_numpy(np.array([row.positions for row in rows])),
        attn_mask=training_attn_mask(segments, copies, blocks)[:, None],
        masked=torch.tensor([r * ROW_LENGTH + i for r, row in enumerate(rows) for i in row.masked]),
        labels=torch.tensor([label for row in rows for label in row.labels]),
        weights=weights / weights.sum(),
    )


def training_attn_mask(segments: Tensor, copies: Tensor, blocks: Tensor) -> Tensor:
    """Return who sees whom: segments, copies, blocks [R, L] -> [R, L, L] bool, True where dim 1 sees dim 2.

    Within its segment, a token sees the clean copies of earlier blocks, and its own block in its own copy.
    """
    same_segment = segments[:, :, None] == segments[:, None, :]
    clean_before = (copies[:, None, :] == 0) & (blocks[:, None, :] < blocks[:, :, None])
    own_block = (copies[:, None, :] == copies[:, :, None]) & (blocks[:, None, :] == blocks[:, :, None])
    return same_segment & (clean_before | own_block)
