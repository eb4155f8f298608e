"""The working state as text: order, budget, and what is said with nothing in hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backend.llm.core.registry import StateSection
from backend.llm.core.working_state import HEAD_CHARACTERS, held, render
from backend.llm.tokens import TokenCounter

COUNTER = TokenCounter()
TASKS = StateSection(0, "Tasks, 2 open of 3", "\n".join(f"{number} [ ] task number {number}" for number in range(40)), "task_list")
PROMPT = StateSection(1, "System prompt in force, version 2", "Answer as a pirate does.", "system_prompt_view")
DRAFT = StateSection(2, "Open draft of the system prompt, version 3, not in force", "Answer as a captain does. " * 20, "system_prompt_view")


def test_everything_that_fits_goes_out_whole() -> None:
    text = render([TASKS, PROMPT, DRAFT], 600, COUNTER)
    assert text == f"{TASKS.heading}:\n{TASKS.text}\n\n{PROMPT.heading}:\n{PROMPT.text}\n\n{DRAFT.heading}:\n{DRAFT.text}"


def test_the_thing_in_hand_is_cut_last() -> None:
    text = render([TASKS, PROMPT, DRAFT], 300, COUNTER)
    assert TASKS.text not in text
    head = TASKS.text[:HEAD_CHARACTERS].rstrip()
    assert text.startswith(f"Tasks, 2 open of 3 (the first {len(head)} of {len(TASKS.text)} characters; task_list reads the rest):\n{head} …")
    assert text.endswith(DRAFT.text)
    assert COUNTER.text(text) <= 300


def test_a_draft_longer_than_the_room_says_its_size_and_who_reads_the_rest() -> None:
    draft = StateSection(2, "Open draft", "word " * 5000, "system_prompt_view")
    text = render([draft], 600, COUNTER)
    assert f"of {len(draft.text)} characters; system_prompt_view reads the rest" in text
    assert COUNTER.text(text) <= 600


def test_nothing_to_tell_is_told() -> None:
    assert render([], 600, COUNTER) == "Nothing is in hand."


def test_a_family_holds_nothing_unless_it_is_the_active_one() -> None:
    state = {"active_tool": "tasks", "state": {"draft": 3}}
    assert held(state, "tasks") == {"draft": 3}
    assert held(state, "system_prompt") == {}
    assert held(None, "tasks") == {}


bodies = st.builds(lambda sign, length: sign * length, st.sampled_from("aя語 \n"), st.integers(0, 4000))
sections = st.lists(st.builds(StateSection, st.just(0), st.sampled_from(["Tasks", "Черновик"]), bodies, st.just("task_list")), max_size=4)


@given(sections, st.sampled_from([40, 100, 600]))
def test_the_room_is_kept_whatever_there_is(found: list[StateSection], limit_tokens: int) -> None:
    assert COUNTER.text(render(found, limit_tokens, COUNTER)) <= limit_tokens
