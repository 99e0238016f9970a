"""Logits of rows over paged prefixes against transformers' Qwen3 with the same 4-D mask, fp32, 1e-4."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from simsd.forward.attention import Biases, plan_attention
from simsd.forward.pages import PagePool, kv_tensors
from simsd.forward.transfer import to_device
from simsd.models.loading import load_model
from simsd.models.model import BlockDiffusionModel
from simsd.verification.rows import DATA, TRUNK, Rows
from tests.unit.checkpoints import Shape, random_weights, write_checkpoint
from tests.unit.toy_tokenizer import MASK_ID

BLOCK = 4
TOLERANCE = 1e-4
SHAPES = {
    "grouped-untied": Shape(),
    "grouped-tied": Shape(tied=True, kv_heads=1),
    "plain-untied": Shape(kv_heads=4, layers=3),
    "plain-tied": Shape(kv_heads=4, tied=True, head_dim=8),
}
Models = tuple[BlockDiffusionModel, Qwen3ForCausalLM]


def oracle_of(shape: Shape, seed: int) -> Qwen3ForCausalLM:
    """transformers' model with the same weights, given to it under the checkpoint's names."""
    config = {k: v for k, v in shape.config().items() if k not in ("architectures", "model_type", "rope_scaling")}
    config = Qwen3Config(**config, attn_implementation="eager")
    model = Qwen3ForCausalLM(config)
    missing, unexpected = model.load_state_dict(random_weights(shape, seed), strict=False)
    assert not unexpected
    assert set(missing) <= ({"lm_head.weight"} if shape.tied else set())
    return model.eval()


@pytest.fixture(scope="module", autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module", params=["as loaded", "prepared"])
def load(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Callable[[str], Models]:
    """The same random checkpoint in our code, also as a worker prepares it for a CPU, and in transformers'."""
    loaded: dict[str, Models] = {}

    def load(name: str) -> Models:
        if name not in loaded:
            path = write_checkpoint(tmp_path_factory.mktemp("model"), SHAPES[name], seed=3, tokenizer=False)
            model = load_model(path)
            if request.param == "prepared":
                model.prepare()
            loaded[name] = (model, oracle_of(SHAPES[name], seed=3))
        return loaded[name]

    return load


class Pages:
    """A model with its pages, as a worker holds them, but in shuffled order; logits of every row come back."""

    def __init__(self, model: BlockDiffusionModel, page_size: int = 8, tokens: int = 1024, seed: int = 0) -> None:
        config, pages, rows = model.config, tokens // page_size, 256
        self.model = model
        self.pool = PagePool(pages, page_size, prefix_cache=False)
        Random(seed).shuffle(self.pool.free)
        heads, head_dim, dtype = config.num_key_value_heads, config.head_dim, model.model.embed_tokens.weight.dtype
        self.kv = kv_tensors(config.num_hidden_layers, pages, page_size, rows, heads, head_dim, dtype, "cpu")
        self.scratch = pages * page_size

    def forward(self, batch: dict[str, Rows], padding: int = 0, one_group: bool = False) -> dict[str, Tensor]:
        """One forward of all -> logits [rows, V] of each; kept rows are committed."""
        for name in [name for name in batch if name not in self.pool.sequences]:
            self.pool.open(name, 128, [])
        held = {name: self.pool.sequences[name] for name in batch}
        repeat = self.model.config.num_attention_heads // self.model.config.num_key_value_heads
        members = [(held[n], rows) for n, rows in batch.items()]
        plan = plan_attention(members, self.scratch, len(self.kv[0]) - 1, padding, one_group)
        attend = plan.on_device(self.kv, to_device(plan.arrays, self.kv[0].device), Biases(self.kv[0], repeat))
        tokens = torch.tensor([t for rows in batch.values() for t in rows.token] + [0] * padding)
        positions = torch.tensor([p for rows in batch.values() for p in rows.position] + [0] * padding)
        logits = self.model.logits(self.model(tokens, positions, attend))[: len(tokens) - padding]
        for name, rows in batch.items():
            self.pool.advance(held[name], rows.token[: rows.kept])
        return dict(zip(batch, logits.split([len(rows) for rows in batch.values()]), strict=True))


def oracle_logits(model: Qwen3ForCausalLM, prefix: list[int], rows: Rows) -> Tensor:
    """Prefix and rows as one dense sequence with a 4-D float mask built here, rule by rule -> logits [rows, V]."""
    everything = Rows()
    everything.commit(prefix, 0, BLOCK)
    for name in ("token", "position", "block", "branch", "kind", "tau"):
        getattr(everything, name).extend(getattr(rows, name))

    def sees(i: int, j: int) -> bool:
        if everything.block[i] != everything.block[j]:
            return everything.branch[j] == TRUNK and everything.block[j] < everything.block[i]
        if everything.branch[i] != everything.branch[j]:
            return False
        earlier, same = everything.tau[j] < everything.tau[i], everything.tau[j] == everything.tau[i]
        if everything.kind[j] == DATA:
            return earlier or (same and everything.kind[i] == DATA)
        return not earlier and (not same or everything.kind[i] != DATA)

    size = len(everything)
    seen = torch.tensor([[sees(i, j) for j in range(size)] for i in range(size)])
    attn_mask = torch.zeros(1, 1, size, size).masked_fill(~seen, torch.finfo(torch.float32).min)
    tokens, positions = torch.tensor([everything.token]), torch.tensor([everything.position])
    out = model(input_ids=tokens, position_ids=positions, attention_mask=attn_mask, use_cache=False)
    return out.logits[0, len(prefix) :]


def prompt(length: int, seed: int = 0) -> list[int]:
    return Random(seed).choices(range(4, 330), k=length)


def committing(tokens: list[int], start: int) -> Rows:
    rows = Rows()
    rows.commit(tokens, start, BLOCK)
    return rows


def speculating(commit: list[int], start: int, layout: str) -> Rows:
    """Rows of a decoding round after `start` cached tokens: what is owed, and the open block in some layout."""
    rows, block, at = committing(commit, start), [50, MASK_ID, MASK_ID, MASK_ID], start + len(commit)
    if layout == "denoise":
        rows.denoise(block, at, MASK_ID)
    elif layout == "paired":
        rows.paired(block, at, MASK_ID, [3, 1], [60, 61])
    elif layout == "branches":
        for branch, filled in enumerate([block, [50, MASK_ID, MASK_ID, 60], [50, 61, MASK_ID, 60]]):
            rows.denoise(filled, at, MASK_ID, branch)
    return rows


def close(a: Tensor, b: Tensor) -> None:
    assert a.shape == b.shape
    assert (a - b).abs().max().item() < TOLERANCE


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("layout", ["commit", "denoise", "paired", "branches"])
def test_dense_rows_equal_qwen3(load: Callable[[str], Models], name: str, layout: str) -> None:
    """Three blocks committed in the same forward, then the open block."""
    model, oracle = load(name)
    rows = speculating(prompt(12), 0, layout)
    close(Pages(model).forward({"a": rows})["a"], oracle_logits(oracle, [], rows))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("chunk", [4, 12, 16, 40])
def test_prefill_in_chunks(load: Callable[[str], Models], name: str, chunk: int) -> None:
    """However a prompt is cut, every row and the block after it are those of one dense pass."""
    model, oracle = load(name)
    pages, tokens = Pages(model), prompt(40)
    parts = [pages.forward({"a": committing(tokens[at : at + chunk], at)})["a"] for at in range(0, len(tokens), chunk)]
    close(torch.cat(parts), oracle_logits(oracle, [], committing(tokens, 0)))
    rows = speculating([], len(tokens), "denoise")
    close(pages.forward({"a": rows})["a"], oracle_logits(oracle, tokens, rows))


@pytest.mark.parametrize("layout", ["denoise", "paired", "branches"])
def test_folded_commit_equals_a_commit_of_its_own(load: Callable[[str], Models], layout: str) -> None:
    model, oracle = load("grouped-untied")
    tokens = prompt(20)
    folded, separate = Pages(model), Pages(model)
    for pages in (folded, separate):
        pages.forward({"a": committing(tokens[:16], 0)})
    together = speculating(tokens[16:], 16, layout)
    one = folded.forward({"a": together})["a"]
    first = separate.forward({"a": committing(tokens[16:], 16)})["a"]
    second = separate.forward({"a": speculating([], 20, layout)})["a"]
    close(one, torch.cat((first, second)))
    close(one, oracle_logits(oracle, tokens[:16], together))
    # What is left in the pages is the same too: the next block sees no difference.
    after = speculating([], 20, "denoise")
    close(folded.forward({"a": after})["a"], separate.forward({"a": after})["a"])


@pytest.mark.parametrize("page_size", [4, 8, 20])
def test_paged_equals_unpaged(load: Callable[[str], Models], page_size: int) -> None:
    """Scattered pages of several sizes against one page that holds everything."""
    model, _ = load("grouped-untied")
    tokens = prompt(44)

    def run(pages: Pages) -> list[Tensor]:
        out = [pages.forward({"other": committing(prompt(24, seed=9), 0), "a": committing(tokens[:24], 0)})["a"]]
        out.append(pages.forward({"a": committing(tokens[24:], 24)})["a"])
        return [*out, pages.forward({"a": speculating([], 44, "paired")})["a"]]

    paged, unpaged = run(Pages(model, page_size, tokens=1280)), run(Pages(model, 128))
    for a, b in zip(paged, unpaged, strict=True):
        close(a, b)


def mixed_batch(pages: Pages) -> tuple[dict[str, list[int]], dict[str, Rows]]:
    """Five sequences in five phases, some cached already: their prefixes and their rows of the next forward."""
    prefixes = {"first": [], "prefill": prompt(32, 1), "denoise": prompt(8, 2), "paired": prompt(52, 3)}
    prefixes |= {"branches": prompt(16, 4), "fresh": []}
    for name, tokens in prefixes.items():
        if tokens:
            pages.forward({name: committing(tokens, 0)})
    rows = {
        "first": committing(prompt(40, 5), 0),
        "prefill": committing(prompt(12, 6), 32),
        "denoise": speculating(prompt(4, 7), 8, "denoise"),
        "paired": speculating([], 52, "paired"),
        "branches": speculating(prompt(4, 8), 16, "branches"),
        "fresh": speculating([], 0, "denoise"),
    }
    return prefixes, rows


@pytest.mark.parametrize("name", SHAPES)
def test_mixed_batch_equals_each_alone(load: Callable[[str], Models], name: str) -> None:
    """Prefill, denoise, paired and branches in one forward: each as alone, and as transformers says."""
    model, oracle = load(name)
    pages = Pages(model)
    prefixes, batch = mixed_batch(pages)
    together = pages.forward(batch)
    for seq, rows in batch.items():
        alone = Pages(model, seed=1)
        if prefixes[seq]:
            alone.forward({seq: committing(prefixes[seq], 0)})
        close(together[seq], alone.forward({seq: rows})[seq])
        close(together[seq], oracle_logits(oracle, prefixes[seq], rows))
    # And what they committed: the next block of those who kept rows.
    for seq in ("first", "prefill"):
        held = pages.pool.sequences[seq].tokens
        rows = speculating([], len(held), "denoise")
        close(pages.forward({seq: rows})[seq], oracle_logits(oracle, held, rows))


def test_order_of_the_batch_does_not_matter(load: Callable[[str], Models]) -> None:
    model, _ = load("grouped-tied")
    forward, backward = Pages(model), Pages(model)
    _, batch = mixed_batch(forward)
    mixed_batch(backward)
    a, b = forward.forward(batch), backward.forward(dict(reversed(batch.items())))
    for seq in batch:
        close(a[seq], b[seq])


@pytest.mark.parametrize("one_group", [False, True])
def test_padding_behind_the_rows_does_not_show(load: Callable[[str], Models], one_group: bool) -> None:
    """Any number of rows; among them as many as make the flat rows those of a full group of rows that are not alike."""
    model, _ = load("grouped-tied")
    plain = Pages(model)
    _, batch = mixed_batch(plain)
    want = plain.forward(batch)
    total, longest = sum(map(len, batch.values())), max(map(len, batch.values()))
    for padding in (1, 3, longest * len(batch) - total):
        padded = Pages(model)
        mixed_batch(padded)
        got = padded.forward(batch, padding, one_group)
        for seq in batch:
            close(got[seq], want[seq])
        for kv, other in zip(padded.kv, plain.kv, strict=True):
            close(kv[: padded.scratch], other[: padded.scratch])


@pytest.mark.parametrize("layout", ["denoise", "paired", "branches"])
def test_rows_that_are_not_kept_leave_pages_untouched(load: Callable[[str], Models], layout: str) -> None:
    model, _ = load("grouped-untied")
    pages = Pages(model)
    pages.forward({"a": committing(prompt(12), 0)})
    before = [kv[: pages.scratch].clone() for kv in pages.kv]
    assert all(kv.abs().sum() > 0 for kv in before)
    pages.forward({"a": speculating([], 12, layout)})
    assert all(torch.equal(kv[: pages.scratch], was) for kv, was in zip(pages.kv, before, strict=True))


@pytest.mark.parametrize("name", ["grouped-untied", "plain-tied"])
def test_bfloat16_stays_finite_and_near(load: Callable[[str], Models], name: str, tmp_path: Path) -> None:
    """The reduced-precision path: no nan from masked slots, and logits that still mean the same."""
    model, _ = load(name)
    path = write_checkpoint(tmp_path, SHAPES[name], seed=3, tokenizer=False)
    short = load_model(path, dtype=torch.bfloat16)
    outputs = []
    for each in (model, short):
        pages = Pages(each)
        _, batch = mixed_batch(pages)
        outputs.append(torch.cat(list(pages.forward(batch).values())))
    full, half = outputs
    assert half.dtype == torch.float32
    assert half.isfinite().all()
    error = (half - full).square().mean().sqrt() / full.square().mean().sqrt()
    assert 0 < error.item() < 0.1
    assert math.isclose(half.std().item(), full.std().item(), rel_tol=0.05)
