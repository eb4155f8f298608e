"""The cap on a tool's result: how much stays, where it is cut, and what is said of the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.llm.core.result_cap import capped
from backend.llm.tokens import BYTES_PER_TOKEN, TokenCounter


def test_what_fits_goes_out_as_it_is() -> None:
    text = "x" * BYTES_PER_TOKEN * 10
    assert capped(text, 10, TokenCounter()) == text
    assert capped("", 10, TokenCounter()) == ""


def test_a_longer_text_says_that_it_was_cut_and_of_how_much() -> None:
    assert capped("x" * 100, 10, TokenCounter()) == "x" * 40 + "\n[Cut: 60 of 100 characters are left out. The person sees the whole.]"


def test_it_says_how_to_read_on() -> None:
    counter = TokenCounter()
    assert capped("x" * 100, 10, counter, tool="rows", starts_at=None).endswith("left out. rows reads the rest, with offset and limit.]")
    assert capped("x" * 100, 10, counter, tool="read", starts_at=500).endswith("left out. read with offset 540 reads on.]")
    assert capped("x" * 100, 10, counter, tool="read", starts_at=-7).endswith("left out. read with offset 33 reads on.]")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("one two\nthree four five six seven", "one two\nthree four five six seven"[:36]),
        ("first line of some length\nsecond line\n" * 3, "first line of some length\nsecond line\n"),
        ("aaaaaaaa bbbbbbbb cccccccc dddddddd eeeeeeee", "aaaaaaaa bbbbbbbb cccccccc dddddddd "),
        ("short\n" + "x" * 100, "short\n" + "x" * 34),
    ],
)
def test_it_is_cut_at_the_end_of_a_line_or_a_word_when_one_is_near(text: str, kept: str) -> None:
    assert capped(text, 10, TokenCounter()).partition("\n[Cut: ")[0] == kept


def test_the_models_own_tokens_count() -> None:
    counter = TokenCounter()
    for _ in range(20):
        counter.learn("dense", counter.text("x" * 400, "dense"), 200)
    sizes = {model: len(capped("x" * 4000, 100, counter, model=model)) for model in ("dense", "other")}
    assert sizes["dense"] < 0.6 * sizes["other"]


@given(st.text(max_size=400), st.integers(1, 100), st.integers(0, 1000))
def test_the_parts_join_to_the_whole(text: str, limit: int, starts_at: int) -> None:
    counter = TokenCounter()
    result = capped(text, limit, counter, tool="read", starts_at=starts_at)
    if counter.text(text) <= limit:
        assert result == text
        return
    part, _, notice = result.rpartition("\n[Cut: ")
    assert text.startswith(part) and counter.text(part) <= limit
    assert int(notice.partition("offset ")[2].split()[0]) == starts_at + len(part)
    assert notice.startswith(f"{len(text) - len(part)} of {len(text)} ")
