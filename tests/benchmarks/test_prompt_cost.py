"""What the arms of the prompt's cost send, and how much of two requests is counted as the same."""

from __future__ import annotations

import pytest

from benchmarks.prompt_cost import DRAFT_EVERY, KEPT, PLAIN, SLIDING, Prompt, Turn, play, said, script, shared, with_every_tool, with_everything

pytestmark = pytest.mark.anyio

PROMPT = {"role": "system", "content": "Be kind."}


def test_the_script_is_always_the_same_and_drafts_now_and_then() -> None:
    turns = script(30)
    assert turns == script(30)
    assert [number for number, turn in enumerate(turns) if turn.draft] == list(range(1, 30, DRAFT_EVERY))
    assert len({turn.question for turn in turns}) == 30
    assert len(script(1, 4)[0].reply.split()) == 4 * len(turns[0].reply.split())


@pytest.mark.parametrize(
    ("former", "latter", "length"),
    [(b"", b"abc", 0), (b"abc", b"abd", 2), (b"abc", b"abcd", 3), (b"abcd", b"abc", 3), (b"xbc", b"abc", 0)],
)
def test_what_both_begin_with(former: bytes, latter: bytes, length: int) -> None:
    assert shared(former, latter) == length


def test_everything_is_the_whole_conversation_with_its_drafts_and_no_state() -> None:
    ours = Prompt([PROMPT, {"role": "system", "content": "STATE"}, {"role": "user", "content": "now"}], [], "reply")
    earlier = [Turn("one", "first", None), Turn("two", "second", "A DRAFT")]
    theirs = with_everything(ours, earlier)
    assert [message["content"] for message in theirs.messages] == ["Be kind.", "one", "first", "Draft a prompt.", "A DRAFT", "two", "second", "now"]
    assert (theirs.tools, said(theirs), said(ours)) == ([], 7, 1)


def test_a_list_of_every_tool_holds_what_ours_offers() -> None:
    ours = Prompt([PROMPT], [{"function": {"name": "current_state"}}], "")
    every, theirs = ({tool["function"]["name"] for tool in change(ours, []).tools} for change in (with_every_tool, with_everything))
    assert every - theirs == {"current_state"}
    assert {"task_delete", "note_read", "data_query"} <= theirs


def test_tools_stand_between_the_prompt_and_the_messages() -> None:
    text = Prompt([PROMPT, {"role": "user", "content": "now"}], [{"name": "TOOL"}], "").text()
    assert text.index("Be kind.") < text.index("TOOL") < text.index("now")


async def test_an_arm_is_played_with_the_product() -> None:
    turns = script(9)
    sliding, kept = await play(SLIDING, turns, PLAIN), await play(KEPT, turns, PLAIN)
    assert [prompt.messages[-1]["content"] for prompt in sliding] == [turn.question for turn in turns]
    assert [said(prompt) for prompt in kept] == [1, 3, 5, 7, 9, 11, 8, 10, 6]  # the window counts receipts too
    drafts = [any(str(turns[1].draft) in message["content"] for message in prompt.messages) for prompt in kept]
    assert drafts == [False] + [True] * 7 + [False]  # the second draft took its place
    cleared = [prompt.messages[-2]["role"] == "system" and len(prompt.messages) > 2 for prompt in sliding]
    assert cleared == [False, True, True, True, True, False, False, False, True]
