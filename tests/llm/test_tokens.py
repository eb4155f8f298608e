"""The token estimate and how the server's own counts correct it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.llm.tokens import FACTOR_LIMITS, MESSAGE_TOKENS, TokenCounter


def test_an_estimate_before_any_count() -> None:
    counter = TokenCounter()
    assert counter.text("") == 0
    assert counter.text("abcd" * 10) == 10
    assert counter.text("слово") == 3
    assert counter.message("") == MESSAGE_TOKENS
    assert (counter.json([]), counter.json({"a": "б"})) == (0, 3)


def test_counts_of_the_server_correct_one_models_estimates() -> None:
    counter = TokenCounter()
    for _ in range(40):
        counter.learn("dense", counter.text("x" * 4000, "dense"), 2000)
    assert counter.text("x" * 4000, "dense") == pytest.approx(2000, rel=0.02)
    assert counter.text("x" * 4000, "other") == counter.text("x" * 4000) == 1000


def test_one_odd_count_does_not_carry_the_estimate_away() -> None:
    counter = TokenCounter()
    counter.learn("m", 1000, 3)
    assert counter.text("x" * 4000, "m") >= 800


@pytest.mark.parametrize(("estimated", "counted"), [(0, 10), (10, 0), (-1, 10), (10, -1)])
def test_counts_that_say_nothing_change_nothing(estimated: int, counted: int) -> None:
    counter = TokenCounter()
    counter.learn("m", estimated, counted)
    assert counter.text("x" * 400, "m") == 100


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=30), st.text())
def test_whatever_was_counted_an_estimate_stays_within_its_limits(counts: list[tuple[int, int]], text: str) -> None:
    counter = TokenCounter()
    for estimated, counted in counts:
        counter.learn("m", estimated, counted)
    low, high = FACTOR_LIMITS
    base = len(text.encode()) / 4
    assert base * low <= counter.text(text, "m") <= base * high + 1
    assert counter.text(text, "m") <= counter.text(text + "x" * 16, "m")
