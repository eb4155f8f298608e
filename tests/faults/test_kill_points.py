"""A few kills in every run; `python -m tests.faults.kill_points` makes many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import kill_points

pytestmark = pytest.mark.anyio


async def test_a_killed_server_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    figures = await kill_points.run(tmp_path, points=20, seed=20)
    assert figures.points == 20
    assert figures.in_mid_reply > 10
    assert figures.between_tools > 2
