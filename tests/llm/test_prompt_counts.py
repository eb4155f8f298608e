"""What a server's own count of a prompt means."""

from __future__ import annotations

import pytest

from backend.llm.prompt_counts import PromptCounts, Reading


def read(counts: PromptCounts, counted: int, estimated: int = 7_900, fresh: int | None = None, num_ctx: int = 16_384) -> Reading:
    return counts.read("m", num_ctx=num_ctx, estimated=estimated, fresh=estimated if fresh is None else fresh, counted=counted)


@pytest.mark.parametrize("counted", [4_000, 5_300, 7_900, 12_000])
def test_a_count_about_as_large_as_the_estimate_is_of_the_whole(counted: int) -> None:
    assert read(PromptCounts(), counted) == "whole"


@pytest.mark.parametrize("counted", [2_050, 3_900])
def test_a_count_well_below_with_nothing_cached_is_of_a_prompt_that_was_cut(counted: int) -> None:
    assert read(PromptCounts(), counted) == "cut"


def test_close_to_half_of_the_window_less_tells_it() -> None:
    assert read(PromptCounts(), 4_098, estimated=6_900, num_ctx=8_192) == "cut"
    assert read(PromptCounts(), 4_198, estimated=6_900, num_ctx=8_192) == "whole"
    assert read(PromptCounts(), 4_098, estimated=4_500, num_ctx=8_192) == "whole"


def test_what_no_window_is_short_enough_to_cut_is_no_cut() -> None:
    assert read(PromptCounts(), 300, estimated=2_000) == "uncached"
    assert read(PromptCounts(), 900) == "uncached"
    assert read(PromptCounts(), 400, estimated=3_000, num_ctx=512) == "cut"


def test_a_count_of_what_is_new_is_no_cut() -> None:
    assert read(PromptCounts(), 2_050, fresh=2_000) == "uncached"
    assert read(PromptCounts(), 2_050, fresh=600) == "cut"


def test_a_server_that_has_shown_to_count_all_is_believed() -> None:
    counts = PromptCounts()
    assert read(counts, 7_500, fresh=2_000) == "whole"
    assert read(counts, 2_050, fresh=2_000) == "cut"
    assert counts.read("other", num_ctx=16_384, estimated=7_900, fresh=2_000, counted=2_050) == "uncached"


def test_a_server_that_has_shown_to_leave_out_what_is_cached_never_alarms() -> None:
    counts = PromptCounts()
    assert read(counts, 7_500, fresh=2_000) == "whole"  # another chat had taken the cache
    assert read(counts, 120, fresh=100) == "uncached"
    assert read(counts, 7_500, fresh=2_000) == "whole"
    assert read(counts, 2_050, fresh=600) == "uncached"
