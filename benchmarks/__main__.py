"""Run benchmarks by name: `python -m benchmarks NAME`; without a name, all that need nothing from outside."""

from __future__ import annotations

import argparse
import platform
import sys
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, cast

import psutil

from benchmarks.report import Report

RESULTS = Path(__file__).parent / "results"

# Each is a module of this package: what its first line says is what it measures.
NAMES = ("overhead", "growth")


class Benchmark(Protocol):
    """What a module of this package offers."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what only this benchmark can be told."""

    def run(self, options: argparse.Namespace) -> Report:
        """Measure. With `options.smoke` as little as shows that it still works, in seconds; `options.rounds` otherwise."""


def benchmark(name: str) -> Benchmark:
    return cast(Benchmark, import_module(f"benchmarks.{name}"))


def main() -> int:
    options = parse(sys.argv[1:])
    for name in [options.name] if options.name else NAMES:
        values = options if options.name else parse([name, *sys.argv[1:]])
        report = benchmark(name).run(values)
        print(report.table(), end="\n\n", flush=True)
        if not options.smoke:
            report.write(options.results, machine())
            print(f"written: {options.results / report.name}.json and .svg", end="\n\n", flush=True)
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--smoke", action="store_true", help="as little as shows that it still works; writes no results")
    shared.add_argument("--rounds", type=int, default=5, help="how often everything is measured, alternating (default: %(default)s)")
    shared.add_argument("--results", type=Path, default=RESULTS, help="the folder for JSON and pictures")
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__, parents=[shared])
    parser.set_defaults(name=None)
    names = parser.add_subparsers(title="benchmarks", metavar="NAME")
    for name in NAMES:
        module = benchmark(name)
        first_line = (module.__doc__ or "").partition("\n")[0]
        command = names.add_parser(name.replace("_", "-"), help=first_line, description=module.__doc__, parents=[shared])
        command.set_defaults(name=name)
        module.add_options(command)
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
