"""Trying random inputs: a few hundred in every test run, for minutes by hand (`python -m tests.faults.fuzz_frames --minutes 3`)."""

from __future__ import annotations

import argparse
import random
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

# Hypothesis begins anew with another seed after so many.
EXAMPLES_A_ROUND = 200


# What stands where something else is expected; quicker to draw than any JSON.
ODD: st.SearchStrategy[Any] = st.sampled_from([None, True, False, 0, -1, 1.5, 2**53, 2**64, "", "x", "null", [], [[]], {}, {"a": [1, {"b": None}]}, ["x", 1]])


@dataclass(frozen=True)
class Check:
    """`attempt` raises when an example brings out a fault."""

    examples: st.SearchStrategy[Any]
    attempt: Callable[[Any], object]


# Opens what is fuzzed, such as a server, and gives the checks on it by name.
Target = Callable[[], AbstractContextManager[dict[str, Check]]]


def explore(check: Check, examples: int, seed_number: int) -> int:
    """How many examples were tried. Raises what the smallest failing one raised, with the example in its notes."""
    tried = 0

    def attempt(example: Any) -> None:
        nonlocal tried
        tried += 1
        check.attempt(example)

    limits = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    seed(seed_number)(limits(given(check.examples)(attempt)))()
    return tried


def main(target: Target, description: str | None) -> None:
    """Try for some minutes, shared among the checks; tell how many examples there were, and each failure."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    failures = 0
    with target() as checks:
        for name, check in checks.items():
            deadline = time.monotonic() + options.minutes * 60 / len(checks)
            tried = rounds = 0
            while time.monotonic() < deadline:
                try:
                    tried += explore(check, EXAMPLES_A_ROUND, options.seed + rounds)
                except Exception:
                    failures += 1
                    traceback.print_exc()
                rounds += 1
            print(f"{name}: {tried} examples")
    print(f"{failures} failures")
    raise SystemExit(failures > 0)
