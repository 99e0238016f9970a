"""The capacity model's arithmetic: by hand, against simulation, and at its limits; and the command around it."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simsd.cli.main import main
from simsd.errors import ConfigError
from simsd.models.config import ModelConfig
from simsd.planning.capacity import Load, Memory, Pair, Speculation, plan
from simsd.planning.costs import GPUS, Fitted, Gpu, Roofline

MODEL = ModelConfig(
    architecture="SDARForCausalLM",
    vocab_size=100,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
    intermediate_size=16,
    max_position_embeddings=128,
    rms_norm_eps=1e-6,
    rope_theta=1e4,
    tie_word_embeddings=False,
    block_size=4,
    mask_token_id=3,
    eos_token_ids=(2,),
)
ROW_COST = Fitted(forward_s=0.01, row_s=0.001)
LOAD = Load(rate=2.0, prompt_tokens=100, answer_tokens=40)


def test_a_block_by_hand() -> None:
    """B = 2, half the tokens stand. Two open: one token with probability .5, else both. One open: that one."""
    half = Speculation(2, 2, 1, 0.5)
    assert half.after_round(2) == {1: 0.5, 0: 0.5}
    assert half.after_round(1) == {0: 1.0}
    assert half.visits == {2: 1.0, 1: 0.5}
    assert half.rounds == 1.5
    assert half.tokens_per_round == pytest.approx(4 / 3)
    # (2 + 1 x .5) drafted and 2 committed rows over 1.5 rounds, beside the block's own 2
    assert half.verify_rows == pytest.approx(2 + 2.5 / 1.5 + 2 / 1.5)
    assert half.open_positions == pytest.approx(2.5 / 1.5)
    # one draft step a round, and the commit
    assert half.draft_rows == pytest.approx(2 + 2 / 1.5)


def test_the_bonus_token_needs_a_position() -> None:
    assert Speculation(4, 2, 2, 1.0).after_round(4) == {3: 0.0, 2: 0.0, 1: 1.0}
    assert Speculation(4, 3, 3, 1.0).after_round(4)[0] == 1.0
    assert Speculation(4, 4, 4, 1.0).after_round(4)[0] == 1.0


@pytest.mark.parametrize("block_size", [4, 8, 16])
def test_limits_of_acceptance(block_size: int) -> None:
    assert Speculation(block_size, block_size, 1, 1.0).tokens_per_round == block_size
    assert Speculation(block_size, block_size, 1, 0.0).tokens_per_round == 1
    assert Speculation(block_size, 0, 0, 0.9).tokens_per_round == 1
    assert Speculation(block_size, 0, 0, 0.0, steps=block_size // 2).tokens_per_round == 2


@given(
    block_size=st.integers(1, 16),
    data=st.data(),
    acceptance=st.floats(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_every_round_reveals_and_the_chain_ends(block_size: int, data: st.DataObject, acceptance: float) -> None:
    gamma = data.draw(st.integers(1, block_size))
    steps = data.draw(st.integers(1, gamma))
    speculation = Speculation(block_size, gamma, steps, acceptance)
    for open_positions in range(1, block_size + 1):
        left = speculation.after_round(open_positions)
        assert sum(left.values()) == pytest.approx(1)
        assert all(0 <= after < open_positions for after in left)
    assert 1 <= speculation.tokens_per_round <= min(block_size, gamma + 1)
    assert 1 <= speculation.draft_forwards(1) <= speculation.draft_forwards(8) <= steps


@pytest.mark.parametrize(("gamma", "draft_steps", "acceptance"), [(4, 1, 0.9), (2, 2, 0.5), (8, 3, 0.7)])
def test_rounds_and_rows_against_simulation(gamma: int, draft_steps: int, acceptance: float) -> None:
    """Rounds drawn token by token, of a thousand sequences; batches of four for the draft's forwards."""
    block_size, chance = 8, random.Random(1)
    rounds: list[tuple[int, int]] = []  # open positions, drafted
    for _ in range(20_000):
        open_positions = block_size
        while open_positions:
            drafted = min(gamma, open_positions)
            rounds.append((open_positions, drafted))
            accepted = next((i for i in range(drafted) if chance.random() >= acceptance), drafted)
            open_positions = max(0, open_positions - accepted - 1)
    speculation = Speculation(block_size, gamma, draft_steps, acceptance)
    assert speculation.tokens_per_round == pytest.approx(20_000 * block_size / len(rounds), rel=0.01)
    paired = sum(block_size - left + drafted + left for left, drafted in rounds) + 20_000 * block_size
    assert speculation.verify_rows == pytest.approx(paired / len(rounds), rel=0.01)
    steps = [min(draft_steps, drafted) for _, drafted in rounds]
    assert speculation.draft_rows == pytest.approx(block_size * (sum(steps) + 20_000) / len(rounds), rel=0.01)
    chance.shuffle(steps)
    most = [max(steps[i : i + 4]) for i in range(0, len(steps), 4)]
    assert speculation.draft_forwards(4) == pytest.approx(sum(most) / len(most), rel=0.02)


def test_a_forward_by_hand() -> None:
    """Attention 8x4 for two queries, a key, a value and the way out: 192; MLP 3 x 8 x 16; norms 2 x (8 + 4)."""
    layer = 8 * 4 * 2 * (2 + 1) + 3 * 8 * 16 + 2 * (8 + 4)
    roofline = Roofline(MODEL, Gpu(1e6, 1e9, 1e9), weight_bytes=2, bandwidth_share=0.5, flops_share=0.5, launch_s=0)
    assert roofline.layer_weights == 2 * layer + 8
    assert roofline.stored_bytes == 2 * (2 * layer + 8 + 2 * 800)
    assert roofline.kv_bytes == 2 * 2 * 1 * 4 * 2
    read = 2 * (2 * layer + 8 + 800) + 3 * 50 * 32  # the embedding's other rows are not read
    assert roofline.read_bytes(3, 50) == read
    assert roofline.operations(10, 4, 50) == 10 * (2 * (2 * layer + 8) + 4 * 2 * 2 * 4 * 50) + 4 * 2 * 800
    assert roofline.seconds(10, 4, 3, 50) == read / 0.5e6
    fast = replace(roofline, gpu=Gpu(1e12, 1e6, 1e9))
    assert fast.seconds(10, 4, 3, 50) == roofline.operations(10, 4, 50) / 0.5e6
    assert replace(fast, launch_s=1.0).seconds(10, 4, 3, 50) == 2.0


def test_the_real_shape_has_its_known_size() -> None:
    """SDAR-8B: 8.19 billion weights, 144 KiB of KV a token in bfloat16."""
    shape = replace(
        MODEL,
        vocab_size=151936,
        hidden_size=4096,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=12288,
    )
    roofline = Roofline(shape, GPUS["h100"])
    assert roofline.stored_bytes == pytest.approx(16.38e9, rel=0.001)
    assert roofline.kv_bytes == 144 * 1024
    reading = (roofline.stored_bytes - 2 * 151936 * 4096) / (3.35e12 * 0.7)
    assert replace(roofline, launch_s=0.0).seconds(8, 4, 1, 0) == pytest.approx(reading)
    assert roofline.seconds(8, 4, 1, 0) == 36 * 250e-6


def test_a_line_through_measured_forwards() -> None:
    exact = Fitted.to([(1, 10, 0.02), (1, 110, 0.12), (3, 30, 0.06)])
    assert (exact.forward_s, exact.row_s) == (pytest.approx(0.01), pytest.approx(0.001))
    assert exact.seconds(50, 0, 0, 0) == pytest.approx(0.06)
    assert Fitted.to([(1, 1, 0.1), (1, 100, 0.1), (1, 50, 0.09)]).forward_s > 0
    falling = Fitted.to([(1, 10, 0.2), (1, 100, 0.1)])
    assert falling.row_s == 0
    assert Fitted.to([(1, 10, 0.005), (1, 100, 0.2)]).forward_s == 0
    with pytest.raises(ConfigError, match="two"):
        Fitted.to([(1, 10, 0.2)])


def test_a_request_by_hand() -> None:
    """All stands, B = 4, one draft step: 10 rounds of 4 tokens; 100 prompt tokens in two rounds of 64 at most."""
    pair = Pair(ROW_COST, ROW_COST, Speculation(4, 4, 1, 1.0), overhead_s=0.002, prefill_rows=64)
    # target: 4 + 4 + 4 rows; draft: 4 + 4
    round_s = 0.002 + (0.01 + 0.012) + (0.01 + 0.008)
    assert pair.round_s(1, 0) == pytest.approx(round_s)
    chunk_s = round_s + 2 * 50 * 0.001
    assert pair.round_s(1, 0, 50) == pytest.approx(chunk_s)
    assert pair.request_s(1, LOAD) == pytest.approx(10 * round_s + 2 * chunk_s)
    assert pair.first_token_s(1, LOAD) == pytest.approx(2 * chunk_s + 1.5 * round_s)
    three = 0.002 + (0.01 + 0.036) + (0.01 + 0.024)
    assert pair.request_s(3, LOAD) == pytest.approx(10 * three + 2 * (three + 0.1) + 2 * 2 * 0.1)
    cached = replace(LOAD, cached_tokens=100)
    assert pair.request_s(1, cached) == pytest.approx(10 * round_s)


def test_draft_steps_cost_forwards() -> None:
    pair = Pair(ROW_COST, ROW_COST, Speculation(4, 4, 4, 1.0), overhead_s=0)
    assert pair.round_s(1, 0) == pytest.approx(0.022 + 4 * 0.01 + 20 * 0.001)


def test_running_follows_little() -> None:
    pair = Pair(ROW_COST, ROW_COST, Speculation(4, 4, 1, 0.8))
    most = pair.requests_per_s(16, LOAD)
    for share in (0.5, 0.9, 0.999):
        running = pair.running_at(share * most, 16, LOAD)
        assert running == pytest.approx(share * most * pair.request_s(running, LOAD), rel=1e-6) or running == 1
    assert pair.running_at(1e-9, 16, LOAD) == 1


def test_pairs_grow_with_the_load_and_meet_the_latency() -> None:
    pair = Pair(ROW_COST, ROW_COST, Speculation(4, 4, 1, 0.8))
    most = pair.requests_per_s(8, LOAD)
    one, three = (plan(pair, replace(LOAD, rate=rate), 8) for rate in (0.79 * most, 2.3 * most))
    assert (one.pairs, three.pairs) == (1, 3)
    assert three.utilisation == pytest.approx(2.3 / 3)
    assert three.most_requests_per_s == pytest.approx(3 * most)
    assert three.tokens_per_s == pytest.approx(2.3 * most * 40)
    assert three.running == pytest.approx(2.3 / 3 * most * three.request_s, rel=1e-6)
    limit = (pair.request_s(1, LOAD) + one.request_s) / 2
    faster = plan(pair, replace(LOAD, rate=0.79 * most), 8, latency_s=limit)
    assert faster.pairs > one.pairs
    assert faster.request_s <= limit
    with pytest.raises(ConfigError, match="latency must be at least"):
        plan(pair, LOAD, 8, latency_s=pair.request_s(1, LOAD) / 2)


def test_vanilla_is_told_beside_it() -> None:
    pair = Pair(ROW_COST, ROW_COST, Speculation(4, 4, 1, 1.0), overhead_s=0)
    found = plan(pair, replace(LOAD, rate=0.01, prompt_tokens=1), 8)
    vanilla_round = 0.01 + 0.001 * (4 + 4 / 4)
    assert found.vanilla_request_s == pytest.approx(40 * vanilla_round + vanilla_round + 0.001)


def test_memory() -> None:
    target = Roofline(MODEL, Gpu(1e9, 1e9, 100_000))
    draft = replace(target, model=replace(MODEL, num_hidden_layers=1))
    apart, together = Memory.of(target, draft, False), Memory.of(target, draft, True)
    assert apart.kv_tokens == int((90_000 - target.stored_bytes) / 32)
    assert together.kv_tokens == int((90_000 - target.stored_bytes - draft.stored_bytes) / (32 + 16))
    assert Memory.of(target, None, False).draft_weights == 0
    with pytest.raises(ConfigError, match="no room"):
        Memory.of(replace(target, gpu=Gpu(1, 1, 5000)), None, False)
    with pytest.raises(ConfigError, match="not even one"):
        plan(Pair(ROW_COST, None, Speculation(4, 0, 0, 0)), LOAD, 0)


def command(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    code = main(["plan", *options])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "--rate", "4", "--draft-steps", "1", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["memory"]["target_kv"] == 144 * 1024
    assert found["pairs"] >= 1
    assert found["request_s"] < found["vanilla_request_s"]
    _, table, _ = command(capsys, "--rate", "4", "--draft-steps", "1")
    assert f"pairs: {found['pairs']}, max_running: {found['most_running']}" in table
    _, out, _ = command(capsys, "--rate", "400", "--json")
    assert json.loads(out)["pairs"] > found["pairs"]
    _, out, _ = command(capsys, "--rate", "4", "--draft", "none", "--json")
    assert json.loads(out)["tokens_per_round"] == 1
    shipped = ("--target", "shipped", "--draft", "shipped")
    _, out, _ = command(capsys, "--rate", "4", *shipped, "--json")
    assert json.loads(out)["memory"]["target_kv"] == 2 * 5 * 4 * 32 * 2  # its layers, heads and width, in bfloat16


def test_the_guides_example_is_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[3] / "docs" / "capacity.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(--draft-steps .*)` \| (\S+) ms \| (\S+) s \| (\S+) s \| (\S+) \|$", text, flags=re.MULTILINE
    )
    assert len(rows) == 4
    for options, *figures in rows:
        found = json.loads(command(capsys, "--rate", "5", *options.split(), "--json")[1])
        names = ("round_s", "request_s", "vanilla_request_s", "most_requests_per_s")
        assert figures == [
            f"{found[n] * (1e3 if n == 'round_s' else 1):.{2 if 'request_s' in n else 1}f}" for n in names
        ]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "--rate"),
        (("--rate", "-1"), "rate"),
        (("--rate", "1", "--acceptance", "1.2"), "acceptance"),
        (("--rate", "1", "--gamma", "9", "--block-size", "4"), "gamma"),
        (("--rate", "1", "--gamma", "2", "--draft-steps", "3"), "draft_steps"),
        (("--rate", "1", "--bandwidth", "0"), "bandwidth"),
        (("--rate", "1", "--flops-share", "0"), "flops_share"),
        (("--rate", "1", "--launch-us", "-1"), "launch_s"),
        (("--rate", "1", "--headroom", "2"), "headroom"),
        (("--rate", "1", "--memory", "10"), "no room"),
        (("--rate", "1", "--max-running", "0"), "max_running"),
        (("--rate", "1", "--cached-tokens", "600"), "cached_tokens"),
        (("--rate", "1", "--max-tokens", "0"), "max_tokens"),
        (("--rate", "1", "--latency", "0.001"), "latency"),
        (("--check", "--clients", "0"), "--clients"),
    ],
)
def test_command_refuses(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], named: str) -> None:
    code, out, err = command(capsys, *options)
    assert code == 2
    assert out == ""
    assert named in err
    assert "\n" not in err.strip()
