"""What a report makes of its samples: medians, paired ratios, and files that hold them all."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.report import Report


def measured() -> Report:
    report = Report("speed", "Speed of things", [("ours", "theirs")])
    for ours, theirs in ((1.0, 2.0), (3.0, 12.0), (2.0, 2.0)):
        report.add("delay", "ms", 10, "ours", ours)
        report.add("delay", "ms", 10, "theirs", theirs)
    report.add("delay", "ms", 1000, "ours", 1234.0)
    return report


def test_a_ratio_is_taken_round_by_round() -> None:
    ratio = measured().measures["delay"].ratio(10, "ours", "theirs")
    assert ratio is not None
    assert (ratio.median, ratio.least, ratio.greatest) == (0.5, 0.25, 1.0)


def test_there_is_no_ratio_to_nothing() -> None:
    report = measured()
    report.add("failed", "chats", "all", "ours", 0)
    report.add("failed", "chats", "all", "theirs", 0)
    assert report.measures["failed"].ratio("all", "ours", "theirs") is None
    assert report.measures["delay"].ratio(1000, "ours", "theirs") is None


def test_the_table_names_medians_with_their_spread() -> None:
    lines = measured().table().splitlines()
    assert lines[0] == "Speed of things"
    assert lines[2].split("  ")[0] == "delay, ms" and lines[2].endswith("ours / theirs")
    assert lines[4].split() == ["10", "2", "(1–3)", "2", "(2–12)", "0.5", "(0.25–1)"]
    assert lines[5].split() == ["1,000", "1,234"]


def test_the_file_holds_every_sample_and_the_picture_is_the_same_each_time(tmp_path: Path) -> None:
    measured().write(tmp_path / "a", {"cores": 2})
    measured().write(tmp_path / "b", {"cores": 2})
    stored = json.loads((tmp_path / "a" / "speed.json").read_text(encoding="utf-8"))
    assert stored["machine"] == {"cores": 2}
    assert stored["measures"][0] == {"name": "delay", "unit": "ms", "case": 10, "subject": "ours", "samples": [1.0, 3.0, 2.0]}
    picture = (tmp_path / "a" / "speed.svg").read_bytes()
    assert b"<svg" in picture and picture == (tmp_path / "b" / "speed.svg").read_bytes()
