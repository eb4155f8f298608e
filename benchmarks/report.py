"""What a benchmark measured, side by side, and the ratios to quote: as a table, as JSON and as a picture.

Knows nothing of what is measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any

import matplotlib

matplotlib.use("svg")
# The same figures give the same file, and no date stands in it.
matplotlib.rcParams["svg.hashsalt"] = "cleanroom"

from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

Case = str | int

PANEL_INCHES = (6.4, 3.4)
# Seven cases' names stand side by side under a panel.
LABEL_CHARACTERS = 14


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some samples with the least and the greatest."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        return cls(median(samples), min(samples), max(samples))

    def __str__(self) -> str:
        if self.least == self.greatest:
            return _short(self.median)
        return f"{_short(self.median)} ({_short(self.least)}–{_short(self.greatest)})"


class LeftOut(Exception):
    """A benchmark that can't be run as things are; the text says what it needs."""


@dataclass(slots=True)
class Measure:
    """One quantity, for some cases and subjects: a sample a round, rounds in the same order for all subjects.

    `summary` is what is shown of a subject's samples, such as a rate with its interval in place of the median.
    """

    name: str
    unit: str
    samples: dict[Case, dict[str, list[float]]] = field(default_factory=dict)
    summary: Callable[[Sequence[float]], Spread] = Spread.of

    def add(self, case: Case, subject: str, sample: float) -> None:
        self.samples.setdefault(case, {}).setdefault(subject, []).append(sample)

    @property
    def subjects(self) -> list[str]:
        return list(dict.fromkeys(subject for row in self.samples.values() for subject in row))

    def ratio(self, case: Case, subject: str, baseline: str) -> Spread | None:
        """How many times the baseline's the subject's sample was, round by round; None where one of them has none."""
        row = self.samples[case]
        pairs = zip(row.get(subject, ()), row.get(baseline, ()), strict=False)
        ratios = [sample / base for sample, base in pairs if base]
        return Spread.of(ratios) if ratios else None


class Report:
    """A benchmark's outcome. `comparisons` are the ratios to quote: subject and baseline."""

    def __init__(self, name: str, title: str, comparisons: Sequence[tuple[str, str]] = ()) -> None:
        self.name = name
        self.title = title
        self.comparisons = comparisons
        self.measures: dict[str, Measure] = {}

    def add(self, measure: str, unit: str, case: Case, subject: str, sample: float) -> None:
        """Add one round's sample."""
        self.measures.setdefault(measure, Measure(measure, unit)).add(case, subject, sample)

    def table(self) -> str:
        """All measures as text: medians, with the least and the greatest in brackets, and the ratios."""
        return "\n\n".join([self.title, *map(self._measure_table, self.measures.values())])

    def write(self, folder: Path, machine: dict[str, Any]) -> None:
        """Write `NAME.json`, with every sample, and `NAME.svg`."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {"name": self.name, "title": self.title, "machine": machine, "measures": self._values()}
        (folder / f"{self.name}.json").write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        self._draw(folder / f"{self.name}.svg")

    def _measure_table(self, measure: Measure) -> str:
        pairs = [pair for pair in self.comparisons if set(pair) <= set(measure.subjects)]
        head = [f"{measure.name}, {measure.unit}", *measure.subjects, *(f"{subject} / {baseline}" for subject, baseline in pairs)]
        rows = [head]
        for case, row in measure.samples.items():
            spreads = [measure.summary(row[subject]) if subject in row else None for subject in measure.subjects]
            ratios = [measure.ratio(case, *pair) for pair in pairs]
            rows.append([_named(case), *("" if spread is None else str(spread) for spread in [*spreads, *ratios])])
        return _aligned(rows)

    def _values(self) -> list[dict[str, Any]]:
        return [
            {"name": measure.name, "unit": measure.unit, "case": case, "subject": subject, "samples": samples}
            for measure in self.measures.values()
            for case, row in measure.samples.items()
            for subject, samples in row.items()
        ]

    def _draw(self, path: Path) -> None:
        count = len(self.measures)
        columns = min(2, count)
        rows = -(-count // columns)
        size = (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows)
        figure, grid = pyplot.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
        figure.suptitle(self.title)
        for axes in grid.flat[count:]:
            axes.set_axis_off()
        for axes, measure in zip(grid.flat, self.measures.values(), strict=False):
            _draw_measure(axes, measure)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def _draw_measure(axes: Axes, measure: Measure) -> None:
    """Curves over a number, bars over names; the lines at their ends reach from the least to the greatest sample."""
    axes.set_title(f"{measure.name}, {measure.unit}", fontsize=10)
    cases = list(measure.samples)
    is_curve = len(cases) > 1 and all(isinstance(case, int) for case in cases)
    width = 0.8 / len(measure.subjects)
    for index, subject in enumerate(measure.subjects):
        places = [place for place, case in enumerate(cases) if subject in measure.samples[case]]
        spreads = [measure.summary(measure.samples[cases[place]][subject]) for place in places]
        heights = [spread.median for spread in spreads]
        errors = [[spread.median - spread.least for spread in spreads], [spread.greatest - spread.median for spread in spreads]]
        if is_curve:
            axes.errorbar([float(cases[place]) for place in places], heights, yerr=errors, label=subject, marker="o", markersize=4, capsize=3)
        else:
            offset = (index - (len(measure.subjects) - 1) / 2) * width
            axes.bar([place + offset for place in places], heights, width, yerr=errors, label=subject, capsize=2)
    if is_curve:
        axes.set_xscale("log")
    else:
        axes.set_xticks(range(len(cases)), [fill(_named(case), LABEL_CHARACTERS) for case in cases], fontsize=8)
    heights = [sample for row in measure.samples.values() for samples in row.values() for sample in samples]
    if min(heights) > 0 and max(heights) > 20 * min(heights):
        axes.set_yscale("log")
    axes.legend(fontsize=7)


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _named(case: Case) -> str:
    return f"{case:,}" if isinstance(case, int) else case


def _short(value: float) -> str:
    """Three digits that say something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
