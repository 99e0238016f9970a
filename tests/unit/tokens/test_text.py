"""The detokeniser: streamed text equals one decode, stop strings never leak, tokens cover exactly the text."""

import itertools
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simsd.tokens.text import TextStream
from simsd.tokens.tokenizer import Tokenizer
from tests.unit import toy_tokenizer

ALPHABET = ["a", "ab", " ", "END", "\n", "é", "你", "好", "😀", "🇫🇷", "👩‍👩‍👧", "�", "###", "#"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(toy_tokenizer.write(tmp_path_factory.mktemp("tokenizer")))


def chunked(ids: list[int], cuts: list[int]) -> list[list[int]]:
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    return [ids[low:high] for low, high in itertools.pairwise(edges)]


def cut_at_stop(text: str, stop: tuple[str, ...]) -> tuple[str, bool]:
    """By brute force: the text grows by one character until it ends in a stop string."""
    for end in range(1, len(text) + 1):
        matched = [s for s in stop if text[:end].endswith(s)]
        if matched:
            return text[: end - max(map(len, matched))], True
    return text, False


def shortest_cover(tokenizer: Tokenizer, ids: list[int], text: str) -> list[int]:
    """By brute force: the fewest tokens whose own text, less an unfinished character at its end, begins with `text`."""
    for n in range(len(ids) + 1):
        data = b"".join(tokenizer.token_bytes(i) for i in ids[:n])
        complete = data.decode("utf-8", errors="replace")
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                complete = complete[:-1]
        if complete.startswith(text):
            return ids[:n]
    return ids


def stream(
    tokenizer: Tokenizer, chunks: list[list[int]], stop: tuple[str, ...] = ()
) -> tuple[list[int], list[str], bool]:
    """All tokens and the pieces of text that came out; the last chunk is pushed as the final one."""
    out, tokens, pieces = TextStream(tokenizer, stop), [], []
    for index, chunk in enumerate(chunks):
        ids, text = out.push(chunk, final=index == len(chunks) - 1)
        tokens += ids
        pieces.append(text)
    return tokens, pieces, out.stopped


ids_of_text = st.lists(st.sampled_from(ALPHABET), max_size=12).map("".join)
cuts_anywhere = st.lists(st.integers(0, 40), max_size=12)
stops = st.lists(st.lists(st.sampled_from(ALPHABET), min_size=1, max_size=3).map("".join), max_size=4).map(tuple)


@given(text=ids_of_text, cuts=cuts_anywhere)
def test_streamed_text_is_the_text(tokenizer: Tokenizer, text: str, cuts: list[int]) -> None:
    ids = tokenizer.encode(text) if text else []
    tokens, pieces, stopped = stream(tokenizer, chunked(ids, cuts))
    assert "".join(pieces) == text
    assert tokens == ids
    assert not stopped


@given(ids=st.lists(st.integers(0, 321), max_size=40), cuts=cuts_anywhere)
def test_any_tokens_give_the_text_of_one_decode(tokenizer: Tokenizer, ids: list[int], cuts: list[int]) -> None:
    tokens, pieces, _ = stream(tokenizer, chunked(ids, cuts))
    assert "".join(pieces) == tokenizer.decode(ids)
    assert tokens == ids


# Single bytes and special tokens: broken UTF-8 in every way.
broken = st.lists(st.integers(0, 259), max_size=30)


@given(ids=broken, cuts=cuts_anywhere, stop=stops)
@example(ids=[], cuts=[], stop=("a",))
def test_stop_strings_cut_alike_however_tokens_arrive(
    tokenizer: Tokenizer, ids: list[int], cuts: list[int], stop: tuple[str, ...]
) -> None:
    expected, expect_stop = cut_at_stop(tokenizer.decode(ids), stop)
    tokens, pieces, stopped = stream(tokenizer, chunked(ids, cuts), stop)
    assert ("".join(pieces), stopped) == (expected, expect_stop)
    assert tokens == (shortest_cover(tokenizer, ids, expected) if stopped else ids)


@given(text=ids_of_text, cuts=cuts_anywhere, stop=stops)
def test_stop_strings_in_real_text(tokenizer: Tokenizer, text: str, cuts: list[int], stop: tuple[str, ...]) -> None:
    ids = tokenizer.encode(text) if text else []
    expected, expect_stop = cut_at_stop(text, stop)
    tokens, pieces, stopped = stream(tokenizer, chunked(ids, cuts), stop)
    assert ("".join(pieces), stopped) == (expected, expect_stop)
    assert tokens == (shortest_cover(tokenizer, ids, expected) if stopped else ids)


@given(text=ids_of_text, cuts=cuts_anywhere, stop=stops)
def test_what_came_out_so_far_is_covered_by_its_tokens(
    tokenizer: Tokenizer, text: str, cuts: list[int], stop: tuple[str, ...]
) -> None:
    ids = tokenizer.encode(text) if text else []
    out, tokens, shown = TextStream(tokenizer, stop), [], ""
    for chunk in chunked(ids, cuts):
        new_ids, new_text = out.push(chunk)
        tokens += new_ids
        shown += new_text
        assert tokens == shortest_cover(tokenizer, ids, shown)
        assert cut_at_stop(text, stop)[0].startswith(shown)


def test_half_a_character_waits(tokenizer: Tokenizer) -> None:
    first, *middle, last = tokenizer.encode("🦉")
    out = TextStream(tokenizer)
    assert out.push([first, *middle]) == ([], "")
    assert out.push([last]) == ([first, *middle, last], "🦉")


def test_half_a_character_at_the_end_is_shown_as_one_decode_shows_it(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a🦉")[:-1]
    out = TextStream(tokenizer)
    assert out.push(ids)[1] == "a"
    assert out.push([], final=True)[1] == "�" == tokenizer.decode(ids)[1:]


def test_the_beginning_of_a_stop_string_waits_and_comes_back_if_it_was_none(tokenizer: Tokenizer) -> None:
    out = TextStream(tokenizer, ("###",))
    a, hashes = tokenizer.encode("a"), [tokenizer.encode("#")[0]] * 2
    assert out.push([*a, *hashes]) == (a, "a")
    assert out.push(a) == ([*hashes, *a], "##a")
    assert out.push(hashes) == ([], "")
    assert out.push([], final=True) == (hashes, "##")
    assert not out.stopped


def test_nothing_comes_after_a_stop(tokenizer: Tokenizer) -> None:
    out = TextStream(tokenizer, ("END",))
    ids = tokenizer.encode("xENDy")
    assert out.push(ids) == (ids[:1], "x")
    assert out.stopped
    assert out.push(ids, final=True) == ([], "")


def test_the_stop_that_ends_first_decides(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("abcdef")
    whole = TextStream(tokenizer, ("abcdef", "cd"))
    assert whole.push(ids)[1] == "ab"
    single = TextStream(tokenizer, ("abcdef", "cd"))
    assert "".join(single.push([i])[1] for i in ids) == "ab"


def test_special_tokens_have_no_text_and_do_not_split_a_character(tokenizer: Tokenizer, tmp_path: Path) -> None:
    end_of_turn = tokenizer.token_id("<|im_end|>")
    assert end_of_turn is not None
    first, *rest = tokenizer.encode("🦉")
    ids = [first, end_of_turn, *rest]
    tokens, pieces, _ = stream(tokenizer, [[i] for i in ids])
    assert ("".join(pieces), tokens) == ("🦉", ids)
    assert tokenizer.decode(ids) == "🦉"


def test_cost_does_not_grow_with_the_answer(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token is turned into bytes once, and no text is decoded again, whatever the number of pushes."""
    looked_up = []
    real = tokenizer.token_bytes
    monkeypatch.setattr(tokenizer, "token_bytes", lambda i: looked_up.append(i) or real(i))
    monkeypatch.setattr(tokenizer, "decode", lambda ids: pytest.fail("decoded again"))
    ids = tokenizer.encode("the cat sat on the mat 😀 " * 50)
    stream(tokenizer, [[i] for i in ids], ("###",))
    assert looked_up == ids
