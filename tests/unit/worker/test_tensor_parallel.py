"""Tensor parallelism with two processes over gloo: the same answers, the same pages, nothing left behind."""

import os
import signal
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from simsd.config import WorkerConfig
from simsd.errors import ConfigError
from simsd.in_process import generate_all
from simsd.models.loading import load_model
from simsd.worker.tensor_parallel import LocalRanks
from tests.unit.checkpoints import Shape, write_checkpoint
from tests.unit.loop.test_async_scheduling import Queueing
from tests.unit.loops import Pair, answers, mixed_requests, write_pair
from tests.unit.worker.test_draft_ahead import Ahead

SHAPE = Shape(hidden_size=32, heads=4, kv_heads=2, intermediate_size=48)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    directory = tmp_path_factory.mktemp("pair")
    target = write_checkpoint(directory / "target", SHAPE, seed=1, shards=2)
    return Pair(target, write_checkpoint(directory / "draft", SHAPE, seed=1, jitter=0.08))


@pytest.fixture
def ranks(pair: Pair) -> Iterator[LocalRanks]:
    config = WorkerConfig(role="target", model=str(pair.target), kv_tokens=2048, threads=1, tensor_parallel=2)
    worker = LocalRanks(config)
    yield worker
    worker.close()
    assert all(process.poll() == 0 for process in worker.followers)


def test_two_ranks_answer_like_one(pair: Pair, ranks: LocalRanks) -> None:
    """All methods in one batch, also in rounds that follow by themselves; afterwards no rank holds a page."""
    target = Queueing(ranks)
    split = pair.loop(target, Ahead(pair.worker("draft")))
    whole = pair.loop(pair.worker("target"), pair.worker("draft"))
    assert answers(generate_all(split, mixed_requests())) == answers(generate_all(whole, mixed_requests()))
    assert target.followed > 0
    assert ranks.page_use().held == 0


def test_each_rank_has_its_part_of_the_weights(pair: Pair) -> None:
    """Head by head and row by row the parts are the whole's; what is small is on every rank."""
    whole = load_model(pair.target).model.layers[1]
    parts = [load_model(pair.target, rank=rank, ranks=2).model.layers[1] for rank in (0, 1)]
    q, k, v = (64, 32, 32)
    for rank, part in enumerate(parts):
        for mine, theirs in zip(
            part.self_attn.qkv_proj.weight.split((q // 2, k // 2, v // 2)),
            whole.self_attn.qkv_proj.weight.split((q, k, v)),
            strict=True,
        ):
            assert torch.equal(mine, theirs.chunk(2)[rank])
        assert torch.equal(part.self_attn.o_proj.weight, whole.self_attn.o_proj.weight.chunk(2, dim=1)[rank])
        assert torch.equal(part.mlp.down_proj.weight, whole.mlp.down_proj.weight.chunk(2, dim=1)[rank])
        assert torch.equal(part.self_attn.q_norm.weight, whole.self_attn.q_norm.weight)


def test_heads_that_cannot_be_shared(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    with pytest.raises(ConfigError, match="tensor_parallel 2: the model's num_key_value_heads 1 cannot be shared"):
        load_model(pair.target, rank=0, ranks=2)


def test_a_lost_rank_fails_the_call_instead_of_hanging(pair: Pair) -> None:
    config = WorkerConfig(role="target", model=str(pair.target), kv_tokens=2048, threads=1, tensor_parallel=2)
    worker = LocalRanks(config)
    os.kill(worker.followers[0].pid, signal.SIGKILL)
    worker.followers[0].wait()
    with pytest.raises(RuntimeError, match="gloo"):
        deque(worker.release([]) for _ in range(100))  # the first may find room in a socket's buffer
    worker.close()
