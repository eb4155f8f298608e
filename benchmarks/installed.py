"""What an installation weighs: the packages that the server and the page need, by the files that they consist of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

WEIGHTS = ".gguf"


def required(requirements: str) -> list[str]:
    """The names in a requirements file that apply to this Python."""
    lines = requirements.replace("\\\n", "").splitlines()
    found = [Requirement(line.partition(" --hash")[0]) for line in lines if re.match(r"\w", line)]
    return [requirement.name for requirement in found if requirement.marker is None or requirement.marker.evaluate()]


def package_bytes(packages: Sequence[Distribution]) -> tuple[int, int]:
    """The bytes of the packages' files, without and of models' weights. Raises ValueError for one that has no record of its files."""
    plain = weights = 0
    for package in packages:
        if package.files is None:
            raise ValueError(f"{package.name} was installed without a record of its files")
        paths = [Path(str(file.locate())) for file in package.files]
        sizes = [(path.suffix, path.stat().st_size) for path in paths if path.is_file()]
        plain += sum(size for suffix, size in sizes if suffix != WEIGHTS)
        weights += sum(size for suffix, size in sizes if suffix == WEIGHTS)
    return plain, weights


def python_packages(project: Path) -> list[Distribution]:
    """What the server needs, and no tool of a developer's. Raises PackageNotFoundError when that is not installed."""
    return [distribution(name) for name in required((project / "requirements.txt").read_text(encoding="utf-8"))]


def browser_packages(project: Path) -> list[Path]:
    """The folders of what npm installs for the page."""
    locked = json.loads((project / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    return [project / path for path, package in locked.items() if path and not package.get("dev")]


def folder_bytes(*folders: Path) -> int:
    """The bytes of all files below, but for compiled Python, which is made where it runs."""
    return sum(path.stat().st_size for path in _files(folders) if path.suffix != ".pyc")


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in folder.rglob("*") if path.is_file())
