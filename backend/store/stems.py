"""Words and their forms in Russian and English. Pure; the stems are Snowball's."""

from __future__ import annotations

import re
from collections.abc import Iterable

import snowballstemmer

WORD = re.compile(r"[^\W_]+")
_CYRILLIC = re.compile(r"[а-я]")
# What an English stem may end with that its other forms have not: study and studies, love and loving.
_CHANGING_ENDS = "eiy"


def words_of(text: str) -> list[str]:
    """The words of a text as they are compared, each once, in their order."""
    return list(dict.fromkeys(WORD.findall(fold(text))))


def fold(text: str) -> str:
    return text.lower().replace("ё", "е")


def stem(word: str) -> str:
    language = "russian" if _CYRILLIC.search(word) else "english"
    return str(snowballstemmer.stemmer(language).stemWord(word))


def common_beginning(word: str) -> str:
    """What all forms of a folded word begin with; other words may do so too."""
    stemmed = stem(word)
    length = next((index for index, (one, other) in enumerate(zip(word, stemmed, strict=False)) if one != other), min(len(word), len(stemmed)))
    return word[:length].rstrip(_CHANGING_ENDS) or word


def forms_among(word: str, candidates: Iterable[str]) -> list[str]:
    """Those of the candidates that are forms of the word, itself included."""
    stemmed = stem(word)
    return [candidate for candidate in candidates if stem(candidate) == stemmed]
