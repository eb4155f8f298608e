"""The border for text: lone surrogates and NUL never pass it, everything else does as it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.text import clean_text

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("written", "clean"),
    [
        ("", ""),
        ("plain", "plain"),
        ("a\0b", "a\ufffdb"),
        ("я\0", "я\ufffd"),
        ("\ud83d", "\ufffd"),
        ("\udc00x", "\ufffdx"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
        ("\u202e\u200d\x85\u2028\u2029\x1b", "\u202e\u200d\x85\u2028\u2029\x1b"),
    ],
)
def test_what_becomes_of_a_text(written: str, clean: str) -> None:
    assert clean_text(written) == clean


@given(st.text())
def test_text_that_can_be_stored_stays_as_it_is(text: str) -> None:
    assert clean_text(text) == text.replace("\0", "\ufffd")


@given(ANY_TEXT)
def test_any_text_can_be_encoded_afterwards(text: str) -> None:
    clean = clean_text(text)
    assert clean.encode().decode() == clean
    assert "\0" not in clean
    assert clean_text(clean) == clean


@given(ANY_TEXT)
def test_what_json_escapes_is_the_same_as_what_it_means(text: str) -> None:
    assert clean_text(json.loads(json.dumps(text))) == clean_text(text)
