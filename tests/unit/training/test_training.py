"""The training script: what rows see, what is masked, how matrices are updated, and that a killed run goes on."""

import json
from itertools import product
from pathlib import Path
from random import Random

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from simsd.eval.families import FAMILIES
from simsd.models.loading import build_model, load_model
from training.data import (
    COPIES,
    ROW_LENGTH,
    Batch,
    Example,
    ExampleSource,
    laid_out_length,
    make_batch,
    padded_to_block,
)
from training.data import training_attn_mask as attn_mask_of
from training.muon import Muon, orthogonalised
from training.tokenizer import IM_END, MASK, PAD, chat_prompt, save_tokenizer, train_tokenizer
from training.train_pair import DRAFT, TARGET, Plan, initialise, train, write_checkpoint

TINY = Plan("tiny", hidden_size=64, layers=1, heads=2, kv_heads=1, intermediate_size=96, steps=4, warmup_steps=2)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(0)


@pytest.fixture(scope="module")
def source(tokenizer: Tokenizer) -> ExampleSource:
    return ExampleSource(tokenizer)


def test_attn_mask_by_hand() -> None:
    # One example of two blocks of 2, its second block noisy in two copies, then one place of padding.
    segments = torch.tensor([[0, 0, 0, 0, 0, 0, 0, 0, -9]])
    copies = torch.tensor([[0, 0, 0, 0, 1, 1, 2, 2, 0]])
    blocks = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 0]])
    rows = {
        0: "110000000",
        1: "110000000",
        2: "111100000",
        3: "111100000",
        4: "110011000",
        5: "110011000",
        6: "110000110",
        7: "110000110",
        8: "000000001",
    }
    seen = attn_mask_of(segments, copies, blocks)[0].int()
    assert {i: "".join(map(str, row.tolist())) for i, row in enumerate(seen)} == rows


def test_batch_is_a_function_of_seed_and_step(source: ExampleSource) -> None:
    first, again, other = make_batch(source, 0, 7), make_batch(source, 0, 7), make_batch(source, 0, 8)
    for name in vars(first):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert not torch.equal(first.token_ids, other.token_ids)


def test_what_a_batch_masks(source: ExampleSource) -> None:
    batch = make_batch(source, 0, 0)
    flat = batch.token_ids.flatten()
    assert (flat[batch.masked] == MASK).all()
    assert int((flat == MASK).sum()) == len(batch.masked) == len(batch.labels)
    assert not torch.isin(batch.labels, torch.tensor([MASK, PAD])).any()
    assert batch.weights.sum().item() == pytest.approx(1)
    assert (flat == PAD).float().mean() < 0.15


def test_examples_fit_a_row_and_only_answers_and_results_are_learnt(source: ExampleSource) -> None:
    rng = Random(0)
    for _ in range(200):
        example = source.draw(rng, rng.choice((0, 5000)))
        assert laid_out_length(padded_to_block(example, 8), 8) <= ROW_LENGTH
    for _ in range(20):
        example = padded_to_block(source.list_of_questions(rng), 8)
        assert len(example.ids) + COPIES * 8 * 3 <= ROW_LENGTH
    chat = source.chat(rng)
    text = source.tokenizer.decode([i for i, learnt in zip(chat.ids, chat.free, strict=True) if learnt], False)
    assert text.endswith("<|im_end|>")
    assert "<|im_start|>" not in text
    for draw in (source.facts_drill, source.sums_drill, source.copy_drill):
        drill = draw(rng)
        assert not drill.free[0]
        assert any(drill.free)


def test_padding_is_learnt_only_after_an_answers_end() -> None:
    assert padded_to_block(Example([9, IM_END], [False, True]), 4) == Example([9, IM_END, 0, 0], [False] + [True] * 3)
    assert padded_to_block(Example([9], [True]), 4) == Example([9, 0, 0, 0], [True] + [False] * 3)


def test_digits_are_tokens_and_the_template_is_the_trained_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    assert len(tokenizer.encode("4096").ids) == 4
    save_tokenizer(tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(str(tmp_path))
    messages = [("system", "Be brief."), ("user", "What is 1 + 2?")]
    asked = next(question for question in FAMILIES["records"].questions("train", 50) if question.tools)
    for turns, tools in product((messages, messages[1:]), ("", asked.tools)):
        text = chat_prompt(turns, tools)
        chat = [{"role": role, "content": content} for role, content in turns]
        given = json.loads(tools) if tools else None
        assert loaded.apply_chat_template(chat, given, tokenize=False, add_generation_prompt=True) == text
        assert loaded(text)["input_ids"] == tokenizer.encode(text).ids
    name, arguments = json.loads(asked.answer.removeprefix("<tool_call>").removesuffix("</tool_call>")).values()
    called = {"type": "function", "function": {"name": name, "arguments": arguments}}
    told = loaded.apply_chat_template([{"role": "assistant", "content": "", "tool_calls": [called]}], tokenize=False)
    assert told == f"<|im_start|>assistant\n{asked.answer}<|im_end|>\n"
    assert loaded.decode(loaded(asked.answer)["input_ids"], skip_special_tokens=True) == asked.answer


def test_muon_orthogonalises_parts_on_their_own() -> None:
    torch.manual_seed(0)
    packed = torch.zeros(12, 8, requires_grad=True)
    packed.grad = torch.randn(12, 8)
    packed.grad[8:] *= 100  # the loud part must not drown the other one
    Muon([(packed, (8, 4))], lr=1.0).step()
    for part in packed.detach().split((8, 4)):
        singular = torch.linalg.svdvals(part)
        assert ((singular > 0.5) & (singular < 1.5)).all()
    assert orthogonalised(torch.randn(2, 5, 3)).shape == (2, 5, 3)


def test_rate_warms_up_stays_and_falls_to_zero() -> None:
    plan = TARGET
    assert plan.rate(0) == 1 / plan.warmup_steps
    assert plan.rate(plan.steps // 4) == 1
    assert 0 < plan.rate(plan.steps - 1) < 0.001


def test_sizes() -> None:
    for plan, millions in ((TARGET, 6.165), (DRAFT, 0.5)):
        assert plan.config.parameters / 1e6 == pytest.approx(millions, abs=0.005)
        assert sum(p.numel() for p in build_model(plan.config).parameters()) == plan.config.parameters


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
def test_a_killed_run_goes_on_to_the_same_weights(
    source: ExampleSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, _ = train(TINY, source, 0, tmp_path / "straight.pt", save_every=10, compiled=False)

    def killed(source: ExampleSource, seed: int, step: int) -> Batch:
        if step == 3:
            raise KeyboardInterrupt
        return make_batch(source, seed, step)

    monkeypatch.setattr("training.train_pair.make_batch", killed)
    with pytest.raises(KeyboardInterrupt):
        train(TINY, source, 0, tmp_path / "killed.pt", save_every=2, compiled=False)
    monkeypatch.undo()
    resumed, _ = train(TINY, source, 0, tmp_path / "killed.pt", save_every=2, compiled=False)
    for one, other in zip(straight.parameters(), resumed.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    with pytest.raises(SystemExit, match="other arguments"):
        train(TINY, source, 1, tmp_path / "killed.pt", save_every=2, compiled=False)


def test_a_checkpoint_is_read_back(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = build_model(TINY.config)
    initialise(model, seed=0)
    write_checkpoint(model, tokenizer, tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.config == TINY.config
    for one, other in zip(model.parameters(), loaded.parameters(), strict=True):
        torch.testing.assert_close(one.bfloat16().float(), other)
