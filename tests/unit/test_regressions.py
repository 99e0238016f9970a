"""Faults that were found once, each with the right value."""

import asyncio
import dataclasses
from pathlib import Path

import pytest
import torch

from simsd.config import WorkerConfig
from simsd.decoding.noise import uniform
from simsd.errors import CheckpointError, ContextLengthError, QueueFullError, RequestError
from simsd.forward.pages import PagePool
from simsd.in_process import collect, generate_all
from simsd.messages.request import DecodeParams
from simsd.models.checkpoint import load_model_config
from simsd.models.layers import rope_table
from simsd.models.loading import load_model
from simsd.models.sdar import block_size_from_name
from simsd.worker.worker import Worker
from tests.unit.checkpoints import write_checkpoint
from tests.unit.forward.test_pages import PAGE, filled
from tests.unit.loops import SHAPE, Pair, request
from tests.unit.models.test_registry import UNTIED, edit_config


def test_a_burst_between_two_rounds_is_bounded_too(pair: Pair) -> None:
    """One runs and one waits; the others are refused, though nobody was admitted yet when they came."""
    loop = pair.loop(pair.worker("target"), pair.worker("draft"), max_running=1, max_queued=1)

    async def run() -> list[object]:
        rounds = asyncio.create_task(loop.run())
        done = await asyncio.gather(*(collect(loop, request(f"r{i}", 6)) for i in range(6)), return_exceptions=True)
        rounds.cancel()
        return done

    done = asyncio.run(run())
    assert sum(isinstance(each, QueueFullError) for each in done) == 4


def test_what_the_draft_s_context_cannot_hold_is_refused(tmp_path: Path) -> None:
    target = write_checkpoint(tmp_path / "target", SHAPE, seed=1)
    draft = write_checkpoint(tmp_path / "draft", dataclasses.replace(SHAPE, max_position_embeddings=64), seed=2)
    pair = Pair(target, draft)
    loop = pair.loop(pair.worker("target"), pair.worker("draft"))
    with pytest.raises(ContextLengthError, match="draft"):
        generate_all(loop, [request("a", 60, max_tokens=10)])


def test_a_draft_that_is_done_sooner_does_not_narrow_its_mates_distributions(pair: Pair) -> None:
    """Four draft steps with the 8 likeliest tokens, beside one step with 64: all were failed in the second step."""
    asked = [
        request("narrow", 9, temperature=1.0, draft_top_k=8, draft_steps=4, gamma=4),
        request("wide", 9, temperature=1.0, draft_top_k=64, draft_steps=1, gamma=4),
    ]
    loop = pair.loop(pair.worker("target"), pair.worker("draft"))
    alone = [generate_all(loop, [each])[0].token_ids for each in asked]
    assert [done.token_ids for done in generate_all(loop, asked)] == alone


def test_a_span_of_the_likeliest_token_alone(pair: Pair) -> None:
    """S2D2 compares the two best probabilities, also where the draft may only sample the best token."""
    loop = pair.loop(pair.worker("target"), pair.worker("draft"))
    asked = [request("one", 9, method="s2d2", temperature=1.0, draft_top_k=1), request("mate", 9, method="vanilla")]
    alone = [generate_all(loop, [each])[0].token_ids for each in asked]
    assert [done.token_ids for done in generate_all(loop, asked)] == alone


def test_a_token_is_biased_once() -> None:
    with pytest.raises(RequestError, match="logit_bias names token id 64 more than once"):
        DecodeParams(logit_bias=((64, 5.0), (7, 1.0), (64, 2.5)))


def test_uniform_is_below_one() -> None:
    mask = 2**64 - 1

    def unshift(x: int, bits: int) -> int:
        out = x
        for _ in range(64 // bits + 1):
            out = x ^ (out >> bits)
        return out

    x = unshift(mask, 31)
    x = x * pow(0x94D049BB133111EB, -1, 2**64) & mask
    x = unshift(x, 27)
    x = x * pow(0xBF58476D1CE4E5B9, -1, 2**64) & mask
    x = unshift(x, 30)
    key = (x - 0x9E3779B97F4A7C15) & mask
    key = key - 2**64 if key >= 2**63 else key
    assert uniform(torch.tensor([key]), torch.tensor([0])).item() < 1


def test_rope_stays_float32_in_bfloat16(tmp_path: Path) -> None:
    model = load_model(write_checkpoint(tmp_path, UNTIED, tokenizer=False), dtype=torch.bfloat16)
    config = model.config
    expected = rope_table(config.max_position_embeddings, config.head_dim, config.rope_theta)
    assert torch.equal(model.model.rope, expected)


@pytest.mark.parametrize(
    "file", ["config.json", "model.safetensors", "model.safetensors.index.json", "generation_config.json"]
)
def test_malformed_files_are_checkpoint_errors(tmp_path: Path, file: str) -> None:
    write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    (tmp_path / file).write_text("{ no")
    with pytest.raises(CheckpointError, match=file):
        load_model(tmp_path)


def test_a_slash_at_the_end_of_a_path_hides_no_block_size(tmp_path: Path) -> None:
    assert block_size_from_name("models/SDAR-8B-Chat-b16/") == 16


def test_rope_scaling_in_the_new_place_is_refused_too(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, UNTIED, tokenizer=False)
    edit_config(directory, rope_theta=None, rope_parameters={"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0})
    with pytest.raises(CheckpointError, match="yarn"):
        load_model_config(directory)


def test_the_end_of_a_prefix_is_evicted_before_its_beginning() -> None:
    """Evicting the first page makes the others unreachable: three pages lost for one."""
    pool, tokens = PagePool(3, PAGE), list(range(3 * PAGE))
    filled(pool, "first", tokens)
    pool.release("first")
    pool.open("other", PAGE, [0] * PAGE)
    assert pool.prefix is not None
    assert len(pool.prefix.match(tokens)) == 2


@pytest.mark.parametrize("block_size", [3, 5, 6, 12, 32])
def test_default_pages_hold_at_least_sixteen_tokens(tmp_path: Path, block_size: int) -> None:
    path = write_checkpoint(tmp_path, SHAPE)
    info = Worker(WorkerConfig(role="target", model=str(path), kv_tokens=128, block_size=block_size)).info
    assert info.page_size >= 16
    assert info.page_size % block_size == 0


def test_a_tiny_temperature_is_greedy() -> None:
    assert DecodeParams(temperature=1e-39).resolve(4).temperature == 0
    assert DecodeParams(temperature=0.01).resolve(4).temperature == 0.01
