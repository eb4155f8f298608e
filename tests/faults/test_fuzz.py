"""A few hundred random inputs of each kind in every run; each fuzzer tries for minutes by hand (`python -m tests.faults.fuzz_sql`)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from backend.settings import PROJECT_FOLDER
from tests.faults import fuzz_frames, fuzz_ndjson, fuzz_sql
from tests.faults.fuzzing import Target, explore

# A seed that never changes: what fails here fails for everyone.
SEED = 1


@pytest.mark.parametrize(
    ("target", "examples"),
    [
        (fuzz_frames.target, {"frames decoded": 100, "frames answered": 60, "bytes on a socket": 60}),
        (fuzz_ndjson.target, {"lines parsed": 100, "lines over sockets": 60}),
        (fuzz_sql.target, {"statements": 200}),
    ],
    ids=["frames", "ndjson", "sql"],
)
def test_nothing_random_brings_out_a_fault(target: Target, examples: dict[str, int]) -> None:
    with target() as checks:
        assert checks.keys() == examples.keys()
        for name, check in checks.items():
            assert explore(check, examples[name], SEED) >= examples[name] // 2


def test_a_streaming_text_keeps_every_letter() -> None:
    script = PROJECT_FOLDER / "tests" / "faults" / "fuzz_markdown.mjs"
    ended = subprocess.run(["node", script, "kept", "1", str(SEED)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["kept"]["tried"] > 10


@pytest.mark.long
def test_what_is_drawn_of_a_text_holds_only_what_may_stand_in_the_page() -> None:
    """In a process of its own: Playwright would keep a loop running in this one."""
    code = "import json; from tests.faults.fuzz_markdown import explore; print(json.dumps(explore(('kept', 'tree'), 20, 1)))"
    ended = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_FOLDER, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    figures = json.loads(ended.stdout)
    assert [found["shortest"] for found in figures.values()] == [None, None]
    assert figures["tree"]["tried"] > 10
