"""`docs/reliability.md` names tests that exist, and has a line for every row of the acceptance checks."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
DOCUMENT = (PROJECT / "docs" / "reliability.md").read_text(encoding="utf-8")

ROWS = {"R": 15, "F": 10, "O": 18, "S": 12, "U": 11, "X": 8, "N": 9, "Q": 12, "P": 6}
CASES = 16

# `tests/file.py::name`, or `::name` of the file before it.
REFERENCE = re.compile(r"`(tests/[\w/]+(?:\.test\.mjs|\.py))?::([^`…]+)`")


def references(text: str) -> list[tuple[str, str]]:
    """Each file and name that the text refers to."""
    found: list[tuple[str, str]] = []
    for file, name in REFERENCE.findall(text):
        found.append((file or found[-1][0], name))
    return found


def names_in(file: str) -> set[str]:
    pattern = r'^test\("([^"]+)"' if file.endswith(".mjs") else r"^(?:async )?def (test_\w+)\("
    return set(re.findall(pattern, (PROJECT / file).read_text(encoding="utf-8"), re.MULTILINE))


def rows() -> dict[str, str]:
    return dict(re.findall(r"^\| ([A-Z]\d+) \| (.+) \|$", DOCUMENT, re.MULTILINE))


def test_every_test_that_is_named_exists() -> None:
    named = references(DOCUMENT)
    assert len(named) > 200
    known = {file: names_in(file) for file, _ in named if (PROJECT / file).exists()}
    assert [f"{file}::{name}" for file, name in named if name not in known.get(file, set())] == []


def test_every_row_and_case_has_a_line_and_a_test() -> None:
    wanted = {f"{letter}{number:02}" for letter, count in ROWS.items() for number in range(1, count + 1)} | {f"A{number}" for number in range(1, CASES + 1)}
    assert rows().keys() == wanted
    assert [row for row, cell in rows().items() if not references(cell)] == []


def test_every_promise_names_its_tests() -> None:
    promises = DOCUMENT.partition("## Promises")[2].partition("## Not promised")[0].strip().split("\n\n")
    assert len(promises) > 10
    assert [promise for promise in promises if not promise.startswith("**") or not references(promise)] == []


def test_a_missing_test_is_seen() -> None:
    here = "tests/test_reliability_doc.py"
    assert references(f"`{here}::test_x`, `::test_y`") == [(here, "test_x"), (here, "test_y")]
    assert "test_a_missing_test_is_seen" in names_in(here) and "test_x" not in names_in(here)
    assert "text in a parameter is not read as a pattern" in names_in("tests/frontend/i18n.test.mjs")
