"""A few kills in every run; `python -m tests.faults.kill_points` makes many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import kill_points

pytestmark = pytest.mark.anyio


# The few points of the first seed lie all over a turn, as the many of the second do by chance.
@pytest.mark.parametrize(("points", "seed"), [(8, 3434), pytest.param(20, 20, marks=pytest.mark.long)])
async def test_a_killed_server_keeps_what_it_acknowledged(tmp_path: Path, points: int, seed: int) -> None:
    figures = await kill_points.run(tmp_path, points, seed)
    print(figures)
    assert figures.points == points
    assert figures.in_mid_reply > points // 2
    assert figures.between_tools > points // 10
