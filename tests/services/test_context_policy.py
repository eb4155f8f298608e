"""Auto-TTL by table and by property."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.services.context_policy import Activity, Clearing, kept, tool_succeeded, turn_ended

NONE, PROMPT, TASKS = None, "system_prompt", "tasks"


@pytest.mark.parametrize(
    ("before", "family", "is_helper", "after", "clearing"),
    [
        (Activity(), PROMPT, False, Activity(PROMPT), None),
        (Activity(NONE, 2), PROMPT, False, Activity(PROMPT), None),
        (Activity(PROMPT, 3), PROMPT, False, Activity(PROMPT, 3), None),
        (Activity(PROMPT, 3), TASKS, False, Activity(TASKS), Clearing("switched", PROMPT, keep=TASKS)),
        (Activity(PROMPT, 3), "history", True, Activity(PROMPT, 3), None),
        (Activity(), "history", True, Activity("history"), None),
        (Activity("history", 1), "data", True, Activity("history", 1), None),
        (Activity("history", 1), TASKS, False, Activity(TASKS), Clearing("switched", "history", keep=TASKS)),
    ],
)
def test_a_call_that_succeeded(before: Activity, family: str, is_helper: bool, after: Activity, clearing: Clearing | None) -> None:
    assert tool_succeeded(before, family, is_helper=is_helper) == (after, clearing)


@pytest.mark.parametrize(
    ("before", "is_user_message", "related", "has_material", "after", "clearing"),
    [
        (Activity(PROMPT, 0), True, True, True, Activity(PROMPT, 0), None),
        (Activity(PROMPT, 3), True, True, True, Activity(PROMPT, 0), None),
        (Activity(PROMPT, 0), True, False, True, Activity(PROMPT, 1), None),
        (Activity(PROMPT, 2), True, False, True, Activity(PROMPT, 3), None),
        (Activity(PROMPT, 3), True, False, True, Activity(), Clearing("expired", PROMPT)),
        (Activity(PROMPT, 3), True, False, False, Activity(), Clearing("expired", PROMPT)),
        (Activity(PROMPT, 7), True, False, True, Activity(), Clearing("expired", PROMPT)),  # the limit was lowered
        (Activity(PROMPT, 3), False, False, True, Activity(PROMPT, 3), None),
        (Activity(PROMPT, 3), False, True, True, Activity(PROMPT, 0), None),
        (Activity(), True, False, False, Activity(), None),
        (Activity(), True, False, True, Activity(NONE, 1), None),
        (Activity(NONE, 3), True, False, True, Activity(), Clearing("expired", NONE)),
        (Activity(NONE, 2), True, False, False, Activity(), None),
    ],
)
def test_the_end_of_a_turn(before: Activity, is_user_message: bool, related: bool, has_material: bool, after: Activity, clearing: Clearing | None) -> None:
    ended = turn_ended(before, is_user_message=is_user_message, related=related, has_material=has_material, ttl_messages=4)
    assert ended == (after, clearing)


def test_keep_and_no_start_the_counter_again() -> None:
    assert kept(Activity(PROMPT, 3)) == Activity(PROMPT, 0)
    assert kept(Activity()) == Activity()


@dataclass(frozen=True)
class Happened:
    """A turn, or a press of Keep (neither message nor tools)."""

    is_user_message: bool
    tools: tuple[str, ...]
    kept: bool


families = st.sampled_from([PROMPT, TASKS, "notes", "history", "data"])
happenings = st.lists(st.builds(Happened, st.booleans(), st.lists(families, max_size=3).map(tuple), st.booleans()), max_size=40)


def play(events: list[Happened], ttl_messages: int) -> list[tuple[Activity, Happened, Activity, list[Clearing]]]:
    """Run turns through the policy as settlement does: before, what happened, after, what was cleared."""
    steps, activity, material = [], Activity(), False
    for event in events:
        before, clearings = activity, []
        for tool in event.tools:
            activity, clearing = tool_succeeded(activity, tool, is_helper=tool in ("history", "data"))
            clearings += [clearing] if clearing else []
            material = True
        related = event.kept or activity.family in event.tools
        activity, clearing = turn_ended(activity, is_user_message=event.is_user_message, related=related, has_material=material, ttl_messages=ttl_messages)
        if clearing is not None:
            clearings.append(clearing)
            material = False
        steps.append((before, event, activity, clearings))
    return steps


@given(happenings, st.integers(3, 5))
def test_the_counter_stays_below_its_limit_and_only_messages_raise_it(events: list[Happened], ttl_messages: int) -> None:
    for before, event, after, clearings in play(events, ttl_messages):
        assert 0 <= after.unrelated_count < ttl_messages
        if after.unrelated_count > before.unrelated_count:
            assert event.is_user_message
            assert after.unrelated_count == before.unrelated_count + 1
        if event.kept or after.family in event.tools:
            assert after.unrelated_count == 0
            assert not any(clearing.reason == "expired" for clearing in clearings)


@given(happenings, st.integers(3, 5))
def test_material_goes_for_a_named_cause_only(events: list[Happened], ttl_messages: int) -> None:
    unrelated = 0
    for before, event, after, clearings in play(events, ttl_messages):
        touched = event.kept or after.family in event.tools
        for clearing in clearings:
            if clearing.reason == "switched":
                assert clearing.family is not None
                assert clearing.keep in event.tools
                assert clearing.keep != clearing.family
                assert clearing.keep not in ("history", "data")
            else:
                assert event.is_user_message
                assert unrelated == ttl_messages - 1, "expired after too few messages, or too many"
                assert after == Activity()
        expired = any(clearing.reason == "expired" for clearing in clearings)
        if before.family is not None and after.family != before.family:
            assert clearings, "a family went without a clearing"
        if touched or expired or (before.family is None and not before.unrelated_count and not after.unrelated_count):
            unrelated = 0
        elif event.is_user_message:
            unrelated += 1


@given(st.integers(3, 5), st.integers(0, 2))
def test_a_question_within_the_limit_clears_nothing(ttl_messages: int, questions: int) -> None:
    events = [Happened(True, (PROMPT,), False), *[Happened(True, (), False)] * questions, Happened(True, (PROMPT,), False)]
    steps = play(events, ttl_messages)
    assert [clearing for _, _, _, clearings in steps for clearing in clearings] == []
    assert steps[-1][2] == Activity(PROMPT, 0)
