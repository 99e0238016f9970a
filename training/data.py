"""Makes training examples during the run: chats of all families and drills, noised and packed into rows.

An example is laid out as [clean copy | noisy copy | noisy copy]. A noisy copy holds only the blocks with tokens to
predict, at the same positions, and of a long example as many of them as fit into a row. A batch is a function of
(seed, step), so a resumed run sees the same batches.
"""

from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from simsd.eval.families import FAMILIES
from simsd.eval.families.math_family import draw_numbers, worked
from simsd.eval.families.parts import invented
from simsd.eval.families.trivia_family import TOPIC_FACTS
from simsd.eval.families.words import CITIES, COLORS, DAYS, FRUIT, JOBS, MEN, THINGS, WOMEN
from simsd.eval.question import Question
from training.tokenizer import END_OF_TEXT, IM_END, MASK, PAD, chat_prompt

ROWS, ROW_LENGTH = 8, 512
LIST_ROWS = 2
"""The rows of a batch that begin with a list of questions. Lists are too long to find room behind other examples."""
COPIES = 2
BLOCK_SIZES = (4, 4, 8)
FAMILY_SHARES = {"math": 0.31, "code": 0.16, "trivia": 0.20, "choice": 0.11, "records": 0.16, "manners": 0.06}
DRILL_SHARE = 0.35 / 1.35
COPY_SHARES, COPY_STEPS = (0.5, 0.08), 600
"""The share of drills in copying, which falls from the first to the second in the first COPY_STEPS steps."""
COPIED = tuple(word for words in (MEN, WOMEN, FRUIT, THINGS, CITIES, JOBS, COLORS, DAYS) for word in words.taught)
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
        return self.asked(rng, self.question(rng))

    def asked(self, rng: Random, question: Question) -> Example:
        messages = [("user", question.prompt)]
        extra = rng.random()
        if extra < 0.06:
            messages = [("system", rng.choice(SYSTEM_PROMPTS)), *messages]
        elif extra < 0.12 and question.family != "lists":
            earlier = self.question(rng)
            messages = [("user", earlier.prompt), ("assistant", earlier.answer), *messages]
        prompt = self.encode(chat_prompt(messages, question.tools))
        answer = [*self.encode(question.answer), IM_END]
        return Example(prompt + answer, [False] * len(prompt) + [True] * len(answer))

    def question(self, rng: Random) -> Question:
        family = rng.choices(list(FAMILY_SHARES), list(FAMILY_SHARES.values()))[0]
        return FAMILIES[family].draw(rng, "train")

    def sums_drill(self, rng: Random) -> Example:
        """Draw a run of worked steps; only what follows the equals signs is masked."""
        parts = []
        for _ in range(rng.randint(3, 6)):
            op = rng.choice("++++----**/")
            line, _ = worked(op, draw_numbers(rng, op, "train"))
            question, _, results = line.partition(" =")
            parts += [(question + " =", False), (results, True), ("\n", False)]
        return self.example(parts)

    def example(self, parts: list[tuple[str, bool]]) -> Example:
        """Join texts, each of which is learnt or not."""
        ids: list[int] = []
        free: list[bool] = []
        for text, learnt in parts:
            part = self.encode(text)
            ids += part
            free += [learnt] * len(part)
        return Example(ids, free)

    def facts_drill(self, rng: Random) -> Example:
        """Draw a run of facts as short statements; only what a question would ask for is masked."""
        parts = []
        for _ in range(rng.randint(2, 4)):
            fact = rng.choice(rng.choices(TOPIC_FACTS, [len(some) ** 0.5 for some in TOPIC_FACTS])[0])
            before, _, after = fact.statement.partition(fact.asked)
            # The blank before the word belongs to its token, as in running text.
            blank = " " if before.endswith(" ") else ""
            parts += [(before.rstrip(" "), False), (blank + fact.asked, True), (after + "\n", False)]
        return self.example(parts)

    def list_of_questions(self, rng: Random) -> Example:
        """Draw a list that leaves room in a row for some noisy blocks."""
        while True:
            example = self.asked(rng, FAMILIES["lists"].draw(rng, "train"))
            if len(example.ids) <= ROW_LENGTH * 7 // 8:
                return example

    def copy_drill(self, rng: Random) -> Example:
        """Draw words to repeat, or values to find by their keys, which are masked.

        The answers of all families copy names and numbers of their prompts, and these drills teach it soonest.
        """
        words = [_word(rng) for _ in range(rng.randint(2, 6))]
        if rng.random() < 0.5:
            text = ", ".join(words)
            return self.example([(text + " ->", False), (" " + text, True), ("\n", False)])
        letters = rng.sample("abcdefghijkmnopqrstuvwxyz", len(words))
        pairs = list(zip(letters if rng.random() < 0.5 else [_word(rng) for _ in words], words, strict=True))
        parts = [("; ".join(f"{key}: {word}" for key, word in pairs) + " ->", False)]
        rng.shuffle(pairs)
        for key, word in pairs:
            parts += [(f" {key}:", False), (f" {word}", True), (";", False)]
        return self.example(parts)

    def draw(self, rng: Random, step: int) -> Example:
        """Draw an example for a step of the training."""
        most, least = COPY_SHARES
        if rng.random() < max(least, most * (1 - step / COPY_STEPS)):
            return self.copy_drill(rng)
        if rng.random() >= DRILL_SHARE:
            return self.chat(rng)
        return self.sums_drill(rng) if rng.random() < 0.7 else self.facts_drill(rng)


def _word(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.25:
        return str(rng.randint(2, 99))
    return invented(rng) if kind < 0.5 else rng.choice(COPIED)


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
        noisy = noisy_blocks(example, block_size)
        room = (ROW_LENGTH - len(self.ids)) // (COPIES * block_size)
        noisy = sorted(rng.sample(noisy, min(room, len(noisy))))
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


def noisy_blocks(example: Example, block_size: int) -> list[int]:
    """Return the starts of the blocks that have something to learn."""
    return [b for b in range(0, len(example.ids), block_size) if any(example.free[b : b + block_size])]


def laid_out_length(example: Example, block_size: int) -> int:
    return len(example.ids) + COPIES * block_size * len(noisy_blocks(example, block_size))


def make_batch(source: ExampleSource, seed: int, step_index: int) -> Batch:
    """Return batch number `step_index`: rows with lists, and others. Both are filled with examples.

    Examples go to the first row with room, until three have found none.
    """
    rng = Random(f"batch/{seed}/{step_index}")
    rows = [_Row([], [], [], [], [], [], [], []) for _ in range(ROWS)]
    for segment, row in enumerate(rows[:LIST_ROWS]):
        block_size = rng.choice(BLOCK_SIZES)
        row.append(padded_to_block(source.list_of_questions(rng), block_size), block_size, segment, rng)
    segment, refused = LIST_ROWS, 0
    while refused < 3:
        block_size = rng.choice(BLOCK_SIZES)
        example = padded_to_block(source.draw(rng, step_index), block_size)
        length = laid_out_length(example, block_size)
        row = next((row for row in rows if len(row.ids) + length <= ROW_LENGTH), None)
        if row is None:
            refused += 1
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
