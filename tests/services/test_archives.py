"""Chats as files: what goes out comes back the same, what other programs wrote comes in once, and what is broken is named."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from backend.services.formats import markdown
from backend.services.formats.filename import MAX_BYTES, filename
from backend.services.formats.transcript import Said, Transcript
from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.replay import replayed
from tests.server import Client, Json, make_settings, rows, running

pytestmark = pytest.mark.anyio


# --- what other programs write, by hand


def gpt_node(name: str, parent: str | None, role: str = "user", text: str = "", **message: Any) -> Json:
    content = {"content_type": "text", "parts": [text]}
    whole = {"id": name, "author": {"role": role, "name": None, "metadata": {}}, "create_time": 1_700_000_000.5, "content": content}
    shaped = {"status": "finished_successfully", "weight": 1.0, "metadata": {}, "recipient": "all", **message}
    return {"id": name, "message": {**whole, **shaped}, "parent": parent, "children": []}


def gpt(*nodes: Json, **fields: Any) -> Json:
    root: Json = {"id": "root", "message": None, "parent": None, "children": []}
    mapping = {node["id"]: node for node in (root, *nodes)}
    head = {"title": "Plants", "create_time": 1_700_000_000.25, "update_time": 1_700_000_900.0, "conversation_id": "gpt-1", "id": "gpt-1"}
    return {**head, "mapping": mapping, "current_node": nodes[-1]["id"] if nodes else "root", "moderation_results": [], **fields}


def gpt_plain(**fields: Any) -> Json:
    return gpt(gpt_node("a", "root", "user", "Which plants?"), gpt_node("b", "a", "assistant", "Ferns.", metadata={"model_slug": "gpt-9"}), **fields)


def webui_message(name: str, parent: str | None, role: str, content: Any, **fields: Any) -> Json:
    return {"id": name, "parentId": parent, "childrenIds": [], "role": role, "content": content, "timestamp": 1_710_000_000, **fields}


def webui(*messages: Json, **fields: Any) -> Json:
    history = {"currentId": messages[-1]["id"] if messages else None, "messages": {message["id"]: message for message in messages}}
    chat = {"id": "", "title": "Garden", "models": ["llama3:8b"], "params": {}, "history": history, "messages": list(messages), "timestamp": 1_710_000_000_000}
    columns = {"id": "web-1", "user_id": "u", "title": "Garden", "created_at": 1_710_000_000, "updated_at": 1_710_000_500, "pinned": False, "archived": False}
    return {**columns, "chat": chat, **fields}


def webui_plain(**fields: Any) -> Json:
    return webui(webui_message("a", None, "user", "Which soil?"), webui_message("b", "a", "assistant", "Loam.", model="llama3:8b"), **fields)


def kept(client_messages: list[Json]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in client_messages]


async def take_in(client: Client, value: object) -> Json:
    return await client.ok("chat.import", content=json.dumps(value))


async def refused(client: Client, content: str) -> str:
    return str((await client.refused("invalid", "chat.import", content=content))["message"])


async def exported(client: Client, chat: str) -> Json:
    return dict(json.loads((await client.ok("chat.export", chat_id=chat, format="json"))["content"]))


def comparable(archive: Json) -> Json:
    """An export without what differs between a chat and its copy."""
    return {**archive, "exported_at": "", "chat": {**archive["chat"], "id": ""}}


# --- ours


async def lived_in(client: Client, fake: FakeOllama) -> str:
    """A chat with thinking, figures, receipts, a prompt of two versions, a hidden message, variants and working material."""
    chat = await client.new_chat(title="A chat: «with» everything / inside?", model="fake:tools")
    await client.ok("chat.update", chat_id=chat, pinned=True, ttl_messages=5, parameters={"temperature": 0.5, "think": "on"})
    for content in ("Be brief.", "Be kind."):
        await client.press(chat, "system_prompt_draft", content=content)
        await client.press(chat, "system_prompt_apply")
    fake.script(script.thinking_then_text("Let me think", "First reply with ```code``` in it"))
    await client.say(chat, "  A question\nof two lines ```` and fences")
    fake.script(script.call("task_add", {"title": "Water"}), script.reply("I added it."))
    await client.say(chat, "Add a task")
    hidden = next(message for message in await client.messages(chat) if "A question" in message["content"])
    await client.ok("message.hide", message_id=hidden["id"], hidden=True)
    fake.script(script.reply("Another reply."))
    await client.finished((await client.ok("turn.regenerate", chat_id=chat))["turn_id"])
    return chat


async def test_an_export_comes_back_the_same(client: Client, fake: FakeOllama, tmp_path: Path) -> None:
    chat = await lived_in(client, fake)
    before = await exported(client, chat)
    assert [message["role"] for message in before["messages"]].count("tool") >= 1
    assert before["messages"][-1]["variants"][0]["content"] == "I added it."
    reply = await take_in(client, before)
    assert (len(reply["chats"]), reply["skipped"], reply["failed"]) == (1, 0, [])
    assert reply["chat"]["id"] != chat
    assert comparable(await exported(client, reply["chat"]["id"])) == comparable(before)
    again = await take_in(client, before)
    assert (again["chat"]["id"], again["chats"], again["skipped"]) == (reply["chat"]["id"], [], 1)
    assert len(rows(tmp_path, "SELECT 1 FROM chats")) == 2


async def test_an_export_holds_no_working_material(client: Client, fake: FakeOllama) -> None:
    chat = await lived_in(client, fake)
    await client.press(chat, "system_prompt_draft", content="A canary draft.")
    permanent = [message for message in await client.messages(chat) if not message["is_ephemeral"]]
    assert kept((await exported(client, chat))["messages"]) == kept(permanent)
    for form in ("json", "markdown"):
        assert "canary" not in (await client.ok("chat.export", chat_id=chat, format=form))["content"]


async def test_a_copy_lives_on(client: Client, fake: FakeOllama) -> None:
    """Its variants can be shown, and its model gets its history and its prompt."""
    chat = await lived_in(client, fake)
    copy = (await take_in(client, await exported(client, chat)))["chat"]["id"]
    shown = (await client.messages(copy))[-1]
    assert shown["variant"] == {"index": 2, "count": 2}
    assert (await client.ok("message.variant", message_id=shown["id"], index=1))["message"]["content"] == "I added it."
    fake.script(script.reply("Here."))
    await client.say(copy, "And now?")
    sent = fake.requests[-1].messages
    assert sent[0]["content"].startswith("Be kind.")
    assert "I added it." in [message["content"] for message in sent]


async def test_a_reply_under_way_is_not_in_it(client: Client, fake: FakeOllama) -> None:
    fake.script(script.hang_mid("half a reply"))
    chat = await client.new_chat()
    await client.ok("message.send", chat_id=chat, client_id="1", text="hi")
    await client.event("message.delta")
    assert kept((await exported(client, chat))["messages"]) == [("user", "hi")]


async def test_several_chats_in_one_file(client: Client, fake: FakeOllama) -> None:
    first, second = await client.new_chat(title="one"), await client.new_chat(title="two")
    for chat in (first, second):
        fake.script(script.reply("Yes."))
        await client.say(chat, "Well?")
    archives = [await exported(client, chat) for chat in (first, second)]
    reply = await take_in(client, {"format": "cleanroom", "version": 1, "chats": archives})
    assert [chat["title"] for chat in reply["chats"]] == ["one", "two"]
    assert (await take_in(client, archives))["skipped"] == 2


async def test_a_later_version_is_not_guessed_at(client: Client) -> None:
    assert "version 2" in await refused(client, json.dumps({"format": "cleanroom", "version": 2, "chat": {}, "messages": []}))


async def test_odd_fields_of_ours_are_survived_one_by_one(client: Client) -> None:
    messages = [
        {"role": "user", "content": "one", "created_at": 5e400, "metrics": {"__proto__": {"admin": True}, "tokens": 3, "deep": {"a": [1], "b": 2}}},
        {"role": "king", "content": "two"}, {"role": "assistant"}, {"role": "tool", "content": "no receipts"}, None, 7, "text",
        {"role": "assistant", "content": "three", "status": "streaming", "variant": 99, "variants": [{"content": "four"}, 5]},
    ]  # fmt: skip
    chat = {"id": ["x"], "title": 7, "ttl_messages": 99, "approval": "never", "parameters": {"temperature": 9, "think": "on", "x": 1}, "families_off": 3}
    archive = {"format": "cleanroom", "version": "1", "__proto__": {"polluted": 1}, "chat": chat, "prompts": [{"content": "P"}, {}], "messages": messages}
    taken = (await client.ok("chat.import", content=json.dumps(archive).replace("Infinity", "1e400")))["chat"]
    assert (taken["title"], taken["ttl_messages"], taken["approval"], taken["families_off"]) == ("one", 4, "after", [])
    assert taken["parameters"] == {"think": "on"}
    shown = await client.messages(taken["id"])
    assert kept(shown) == [("user", "one"), ("assistant", "three")]
    assert shown[0]["metrics"] == {"tokens": 3, "deep": {"b": 2}}
    assert (shown[1]["status"], shown[1]["variant"]) == ("complete", {"index": 3, "count": 3})


# --- ChatGPT's


async def test_a_chatgpt_conversation_is_what_was_shown_of_it(client: Client) -> None:
    nodes = [
        gpt_node("s", "root", "system", "secret system"),
        gpt_node("h", "s", "user", "instructions", metadata={"is_visually_hidden_from_conversation": True}),
        gpt_node("a", "h", "user", "Look", content={"content_type": "multimodal_text", "parts": [{"content_type": "image_asset_pointer"}, "at this"]},
                 metadata={"attachments": [{"name": "plan.pdf"}]}),
        gpt_node("old", "a", "assistant", "a reply that was regenerated"),
        gpt_node("t", "a", "assistant", content={"content_type": "thoughts", "thoughts": [{"summary": "Looking", "content": "at leaves"}]}),
        gpt_node("r", "t", "assistant", content={"content_type": "reasoning_recap", "content": "Thought for 3 s"}),
        gpt_node("c", "r", "assistant", recipient="python", content={"content_type": "code", "language": "python", "text": "1 + 1"}),
        gpt_node("o", "c", "tool", content={"content_type": "execution_output", "text": "2"}),
        gpt_node("b", "o", "assistant", "It is a fern\ue200cite\ue202turn0search1\ue201.", metadata={"model_slug": "gpt-9"}),
        gpt_node("d", "b", "assistant", content={"content_type": "code", "language": "python", "text": "print('```')"}),
    ]  # fmt: skip
    reply = await take_in(client, [gpt(*nodes)])
    chat = reply["chat"]
    assert (chat["title"], chat["model"], chat["created_at"], chat["updated_at"]) == (
        "Plants", None, "2023-11-14T22:13:20.250000Z", "2023-11-14T22:28:20.000000Z",
    )  # fmt: skip
    question, answer = await client.messages(chat["id"])
    assert question["content"] == "[image]\nat this\n[plan.pdf]"
    assert answer["content"] == "It is a fern.\n\n````python\nprint('```')\n````"
    assert (answer["thinking"], answer["model"], answer["created_at"]) == ("Looking\nat leaves", "gpt-9", "2023-11-14T22:13:20.500000Z")
    assert (await take_in(client, gpt(*nodes)))["skipped"] == 1


@pytest.mark.parametrize("current", [None, "not there", 5, "a loop"])
async def test_a_lost_current_node_and_a_loop_are_survived(client: Client, current: object) -> None:
    conversation = gpt_plain(current_node=current)
    if current == "a loop":
        conversation["current_node"] = "b"
        conversation["mapping"]["a"]["parent"] = "b"
    chat = (await take_in(client, conversation))["chat"]
    assert kept(await client.messages(chat["id"])) == [("user", "Which plants?"), ("assistant", "Ferns.")]


# --- Open WebUI's


async def test_an_open_webui_chat_is_the_branch_that_was_shown(client: Client) -> None:
    folded = '<details type="reasoning" done="true" duration="3">\n<summary>Thought for 3 seconds</summary>\n> So &lt;much&gt;\n> soil\n</details>\n'
    called = '<details type="tool_calls" done="true" id="1" name="search" arguments="x">\n<summary>Tool Executed</summary>\n</details>\n'
    messages = [
        webui_message("s", None, "system", "system text"),
        webui_message("a", "s", "user", [{"type": "text", "text": "Which soil?"}],
                      files=[{"type": "image", "url": "data:"}, {"name": "map.pdf"}]),
        webui_message("x", "a", "assistant", "another model's reply"),
        webui_message("b", "a", "assistant", folded + called + "Loam.", model="llama3:8b", done=True),
    ]  # fmt: skip
    conversation = webui(*messages)
    conversation["chat"]["params"] = {"system": "Be a gardener."}
    chat = (await take_in(client, [conversation]))["chat"]
    assert (chat["title"], chat["created_at"], chat["updated_at"]) == ("Garden", "2024-03-09T16:00:00.000000Z", "2024-03-09T16:08:20.000000Z")
    question, answer = await client.messages(chat["id"])
    assert question["content"] == "Which soil?\n[image]\n[map.pdf]"
    assert (answer["content"], answer["thinking"], answer["model"]) == ("Loam.", "So <much>\nsoil", "llama3:8b")
    assert (await exported(client, chat["id"]))["prompts"][0]["content"] == "Be a gardener."


@pytest.mark.parametrize("shape", ["without columns", "without a tree", "without a current message"])
async def test_other_shapes_of_open_webui(client: Client, shape: str) -> None:
    conversation = webui_plain()
    if shape == "without columns":
        conversation = conversation["chat"]
    elif shape == "without a tree":
        del conversation["chat"]["history"]
    else:
        del conversation["chat"]["history"]["currentId"]
    reply = await take_in(client, conversation)
    assert kept(await client.messages(reply["chat"]["id"])) == [("user", "Which soil?"), ("assistant", "Loam.")]
    assert (await take_in(client, [conversation]))["skipped"] == 1


# --- taken in once


async def test_a_conversation_that_has_grown_goes_on_in_its_chat(address: str, client: Client) -> None:
    chat = (await take_in(client, [gpt_plain()]))["chat"]["id"]
    await client.ok("chat.open", chat_id=chat)
    grown = gpt_plain(update_time=1_700_001_000.0, current_node="d")
    grown["mapping"] |= {"c": gpt_node("c", "b", "user", "Why?"), "d": gpt_node("d", "c", "assistant", "Shade.")}
    async with replayed(address, chat):
        reply = await take_in(client, [grown])
    assert ([found["id"] for found in reply["chats"]], reply["skipped"]) == ([chat], 0)
    assert [event["message"]["content"] for event in client.of("message.created")] == ["Why?", "Shade."]
    assert kept(await client.messages(chat))[2:] == [("user", "Why?"), ("assistant", "Shade.")]
    assert (await take_in(client, [grown]))["skipped"] == 1
    assert (await take_in(client, [gpt_plain()]))["skipped"] == 1  # the older file is known, too


async def test_a_chat_that_went_on_here_is_left_alone(client: Client, fake: FakeOllama) -> None:
    chat = (await take_in(client, gpt_plain()))["chat"]["id"]
    await client.ok("chat.open", chat_id=chat)
    fake.script(script.reply("Here."))
    await client.say(chat, "Going on here")
    grown = gpt_plain(current_node="e")
    there = [gpt_node("c", "b", "user", "Going on there"), gpt_node("d", "c", "assistant", "There."), gpt_node("e", "d", "user", "Well?")]
    grown["mapping"] |= {node["id"]: node for node in there}
    assert (await take_in(client, grown))["skipped"] == 1
    assert [content for _, content in kept(await client.messages(chat))] == ["Which plants?", "Ferns.", "Going on here", "Here."]


async def test_a_chat_in_which_a_turn_runs_is_left_alone(client: Client, fake: FakeOllama) -> None:
    """The same question is asked here and there at the same time."""
    bare = gpt(gpt_node("a", "root", "user", "Which plants?"))
    chat = (await take_in(client, bare))["chat"]["id"]
    await client.ok("chat.open", chat_id=chat)
    fake.script(script.hang_before_headers())
    await client.ok("turn.regenerate", chat_id=chat)
    assert (await take_in(client, gpt_plain()))["skipped"] == 1
    assert kept(await client.messages(chat)) == [("user", "Which plants?")]


async def test_without_an_id_a_conversation_is_known_by_what_it_is(client: Client, tmp_path: Path) -> None:
    bare = gpt_plain(conversation_id=None, id=None)
    assert len((await take_in(client, [bare, bare, gpt_plain(conversation_id=None, id=None, title="Other")]))["chats"]) == 2
    assert (await take_in(client, bare))["skipped"] == 1
    assert len(rows(tmp_path, "SELECT 1 FROM chats")) == 2


async def test_the_same_id_of_two_programs_is_two_chats(client: Client) -> None:
    reply = await take_in(client, [gpt_plain(conversation_id="same"), webui_plain(id="same")])
    assert [chat["title"] for chat in reply["chats"]] == ["Plants", "Garden"]


async def test_a_deleted_chat_can_be_taken_in_again(client: Client) -> None:
    chat = (await take_in(client, gpt_plain()))["chat"]["id"]
    await client.ok("chat.delete", chat_id=chat)
    assert len((await take_in(client, gpt_plain()))["chats"]) == 1


async def test_every_page_hears_of_what_is_taken_in(address: str, client: Client) -> None:
    async with Client.connect(address) as other:
        reply = await take_in(client, [gpt_plain(), webui_plain()])
        await other.event("chat.created", lambda event: event["chat"]["title"] == "Garden")
        assert [event["chat"] for event in other.of("chat.created")] == reply["chats"]


# --- what can't be taken in


@pytest.mark.parametrize(
    "content",
    ["", " ", "hello", "{", "[]", "{}", "null", "7", '"text"', "[1, null]", '{"a": 1}', '{"chats": []}', '{"mapping": []}', "[" * 100_000, "9" * 5000],
)
async def test_a_file_of_another_kind_is_refused_with_what_was_expected(client: Client, tmp_path: Path, content: str) -> None:
    message = await refused(client, content)
    assert "ChatGPT" in message and "Open WebUI" in message and "exported here" in message
    assert rows(tmp_path, "SELECT 1 FROM chats") == []


async def test_one_bad_conversation_does_not_stop_the_others(client: Client) -> None:
    deep: Any = gpt_plain(title="Deep", conversation_id="deep")
    nested: Any = 1
    for _ in range(100):
        nested = [nested]
    deep["extra"] = nested
    empty = gpt(title="Empty", conversation_id="empty")
    broken = gpt_plain(title="Broken", conversation_id="broken")
    broken["mapping"] = {"a": 5, "b": {"message": {"author": 7, "content": "x", "metadata": []}}, "c": None}
    reply = await take_in(client, [deep, empty, gpt_plain(), broken, {"title": "Stranger"}])
    assert [chat["title"] for chat in reply["chats"]] == ["Plants"]
    assert [failure["title"] for failure in reply["failed"]] == ["Deep", "Empty", "Broken", "Stranger"]
    assert all(failure["reason"].endswith(".") for failure in reply["failed"])


async def test_when_nothing_can_be_taken_in_the_first_reason_is_said(client: Client) -> None:
    assert "no message" in await refused(client, json.dumps([gpt(), gpt()]))


async def test_a_message_that_is_too_long_refuses_its_conversation(tmp_path: Path, fake: FakeOllama) -> None:
    async with running(make_settings(tmp_path, fake, max_message_bytes=2000)) as address, Client.connect(address) as client:
        long = gpt(gpt_node("a", "root", "user", "ы" * 1001), title="Long", conversation_id="long")
        reply = await take_in(client, [long, gpt_plain()])
        assert [failure["title"] for failure in reply["failed"]] == ["Long"]
        assert "2,002 bytes" in reply["failed"][0]["reason"]


async def test_text_is_cleaned_on_its_way_in(client: Client) -> None:
    content = json.dumps([gpt(gpt_node("a", "root", "user", "a\0b\ud800c"), title="t\0\udfff")])
    chat = (await client.ok("chat.import", content=content))["chat"]
    assert (chat["title"], (await client.messages(chat["id"]))[0]["content"]) == ("t\ufffd\ufffd", "a\ufffdb\ufffdc")


@pytest.mark.parametrize(("time", "expected"), [
    (1_700_000_000, "2023-11-14T22:13:20.000000Z"), (1_700_000_000_000, "2023-11-14T22:13:20.000000Z"),
    ("2023-11-14T23:13:20+01:00", "2023-11-14T22:13:20.000000Z"),
    ("2023-11-14T22:13:20", "2023-11-14T22:13:20.000000Z"), (None, None), ("yesterday", None), (-5, None), (1e300, None), (True, None), (4e9, None),
])  # fmt: skip
async def test_times_of_every_kind_become_ours_and_none_lies_ahead(client: Client, time: object, expected: str | None) -> None:
    chat = (await take_in(client, gpt_plain(create_time=time, update_time=time)))["chat"]
    assert chat["created_at"] == expected if expected else chat["created_at"].startswith("20")
    newer = (await client.ok("chat.create"))["chat"]
    assert chat["updated_at"] <= newer["updated_at"]


async def test_a_conversation_without_a_title_is_named_by_its_first_question(client: Client) -> None:
    chat = (await take_in(client, gpt_plain(title=None)))["chat"]
    assert chat["title"] == "Which plants?"


async def test_other_commands_are_answered_while_a_file_is_taken_in(client: Client) -> None:
    nodes = [gpt_node(f"n{number}", f"n{number - 1}" if number else "root", ("user", "assistant")[number % 2], f"word {number}") for number in range(5000)]
    taking = asyncio.create_task(take_in(client, gpt(*nodes)))
    await client.ok("tool.list")
    assert not taking.done()
    chat = (await taking)["chat"]
    page = (await client.ok("chat.open", chat_id=chat["id"], limit=2))["messages"]
    assert kept(page) == [("user", "word 4998"), ("assistant", "word 4999")]


# --- to be read


async def test_an_export_to_be_read(client: Client, fake: FakeOllama) -> None:
    chat = await lived_in(client, fake)
    reply = await client.ok("chat.export", chat_id=chat, format="markdown")
    assert reply["filename"] == "A chat «with» everything inside.md"
    text = reply["content"]
    assert text.startswith("# A chat: «with» everything / inside?\n\n")
    assert "`````text\n  A question\nof two lines ```` and fences\n`````" in text
    assert "## You\n" in text and "## fake:tools\n" in text
    assert "<summary>Thinking</summary>" in text and "First reply with ```code``` in it" in text
    assert re.search(r"^> task\\_add: ok", text, re.MULTILINE)
    assert "hidden from the model" in text
    assert text.count("\n## ") == 4


@pytest.mark.parametrize(("reply", "end"), [
    ("```py\nx = 1", "\n```"), ("````\n```\n", "\n````"), ("~~~\n```", "\n~~~"), ("```\nx\n```", ""), ("``` a ``` b", ""),
    ("no code", ""), ("```\na\n``` b", "\n```"),
])  # fmt: skip
def test_a_reply_that_broke_off_in_code_does_not_swallow_the_rest(reply: str, end: str) -> None:
    said = [Said("assistant", reply, "2026-01-01T00:00:00Z")]
    assert markdown.encode(Transcript("", "T", "auto", "2026-01-01T00:00:00Z", "", said)).endswith(f"{reply}{end}\n")


@pytest.mark.parametrize(("title", "name"), [
    ("", "chat"), ("...", "chat"), ("a/b\\c:d*e?f", "a b c d e f"), ("CON", "chat CON"), ("nul.txt", "chat nul.txt"), ("  x \n y. ", "x y"),
    ("\u202etxt.exe\u0000", "txt.exe"), ("Отчёт за март", "Отчёт за март"), (".hidden", "hidden"), ("contract", "contract"),
])  # fmt: skip
def test_a_file_has_a_name_that_every_system_takes(title: str, name: str) -> None:
    assert filename(title, "md") == f"{name}.md"


def test_a_files_name_is_cut_between_letters() -> None:
    name = filename("ы" * 500, "json")
    assert name == "ы" * (MAX_BYTES // 2) + ".json"
