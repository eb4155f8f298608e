"""Run benchmarks by name, `python -m benchmarks NAME`; without one, all of them."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, cast

import psutil

from benchmarks.report import LeftOut, Report

RESULTS = Path(__file__).parent / "results"

# Each is a module of this package: what its first line says is what it measures.
NAMES = ("overhead", "growth", "context", "prompt_cost", "fan_out", "replicas", "weight")


class Benchmark(Protocol):
    """What a module of this package offers."""

    def add_options(self, group: argparse._ArgumentGroup) -> None:
        """Add what only this benchmark can be told."""

    def run(self, options: argparse.Namespace) -> Report:
        """Measure. With `options.smoke` as little as shows that it still works, in seconds; `options.rounds` otherwise.

        Raises LeftOut when that takes something that isn't there.
        """


def benchmark(name: str) -> Benchmark:
    return cast(Benchmark, import_module(f"benchmarks.{name}"))


def main() -> int:
    # Only what is named is imported: all of them take seconds.
    found = {name: benchmark(name) for name in NAMES if name in sys.argv} or {name: benchmark(name) for name in NAMES}
    options = parse(sys.argv[1:], found)
    for name in [options.name] if options.name else NAMES:
        try:
            report = found[name].run(options)
        except LeftOut as reason:
            print(f"{name} is left out: {reason}", end="\n\n", flush=True)
            if options.name:
                return 1
            continue
        print(report.table(), end="\n\n", flush=True)
        if not options.smoke:
            report.write(options.results, machine())
            print(f"written: {options.results / report.name}.json and .svg", end="\n\n", flush=True)
    return 0


def parse(arguments: list[str], found: Mapping[str, Benchmark]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure, side by side; without a name, everything.")
    parser.add_argument("name", nargs="?", choices=found, metavar="NAME", help=", ".join(found))
    parser.add_argument("--smoke", action="store_true", help="as little as shows that it still works; writes no results")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured, alternating (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder for JSON and pictures")
    for name, module in found.items():
        module.add_options(parser.add_argument_group(name, (module.__doc__ or "").partition("\n")[0]))
    return parser.parse_args(arguments)


def machine() -> dict[str, Any]:
    """What the figures depend on beside our code."""
    packages = ("starlette", "uvicorn", "websockets", "aiohttp", "ollama", "databases")
    return {
        "when": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "packages": {name: version(name) for name in packages},
    }


if __name__ == "__main__":
    sys.exit(main())
