"""Two people on one server: what one of them has is not there for the other, by any command, event, tool or query."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import fake_ollama as script
from tests.fake_ollama import FakeOllama
from tests.server import Client, Json, make_settings, rows, running
from tests.test_protocol import COMMANDS

pytestmark = pytest.mark.anyio

RANDOM = {"chat_id": "0" * 32, "message_id": 999_999, "before_id": 999_998, "transaction_id": "1" * 32, "call_id": "2" * 32}

# What commands need beside ids, so that only these can be what is wrong.
VALUES: Json = {
    "title": "x", "client_id": "c", "text": "x", "tool": "task_list", "format": "json", "query": "canary", "hidden": True, "index": 1,
    "epoch": None, "after_seq": None,
}  # fmt: skip
ANSWERS = {"tool.answer": "allow", "transaction.answer": "yes"}
# These name nothing that could be somebody's; models are the machine's.
NAMING_NOTHING = {"chat.create", "chat.import", "tool.list", "models.refresh", "model.update", "model.pull", "model.pull_cancel"}


@asynccontextmanager
async def two(folder: Path, fake: FakeOllama) -> AsyncIterator[tuple[Client, Client]]:
    """Ann's socket and Ben's, on one server."""
    settings = make_settings(folder, fake, identity_header="X-Forwarded-User", trusted_proxies="127.0.0.1")
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(running(settings))
        ann, ben = [await stack.enter_async_context(Client.connect(address, additional_headers={"X-Forwarded-User": name})) for name in ("ann", "ben")]
        yield ann, ben


def ids_in(kind: str) -> list[str]:
    """The fields by which a command names what may be somebody else's."""
    model = next(model for model in COMMANDS if "type" in model.model_fields and model.model_fields["type"].annotation.__args__[0] == kind)  # type: ignore[union-attr]
    return [name for name in model.model_fields if name.endswith("_id") and name != "client_id"]


KINDS = sorted(model.model_fields["type"].annotation.__args__[0] for model in COMMANDS if "type" in model.model_fields)  # type: ignore[union-attr]


async def chat_with_everything(client: Client, fake: FakeOllama, canary: str) -> Json:
    """Ids of each kind: a chat with a reply in two variants, a finished transaction and, beside it, a call that waits."""
    chat = await client.new_chat(title=canary)
    fake.script(script.reply(canary), script.reply(canary))
    await client.say(chat, canary)
    turn = (await client.ok("turn.regenerate", chat_id=chat))["turn_id"]
    await client.finished(turn)
    reply = next(message for message in await client.messages(chat) if message["role"] == "assistant")
    await client.press(chat, "system_prompt_draft", content=canary)
    await client.press(chat, "system_prompt_apply")
    pending = (await client.context(chat))["pending_transaction"]
    assert pending is not None and reply["variant"]["count"] == 2
    await client.press(chat, "task_add", title=canary)
    await client.press(chat, "note_save", title=canary, content=canary)
    return {"chat_id": chat, "message_id": reply["id"], "before_id": reply["id"], "transaction_id": pending["transaction_id"]}


async def paused_call(client: Client, fake: FakeOllama) -> tuple[str, str]:
    """A chat whose turn waits for Allow or Deny, and the call's id."""
    chat = await client.new_chat()
    await client.ok("chat.update", chat_id=chat, approval="before")
    fake.script(script.call("task_add", {"title": "waits"}))
    await client.ok("message.send", chat_id=chat, client_id="p", text="x")
    await client.event("turn.waiting", lambda event: event["chat_id"] == chat and event["reason"] == "approval")
    asked = next(message for message in await client.messages(chat) if message.get("card", {}).get("approval"))
    return chat, str(asked["card"]["approval"]["call_id"])


def told(reply: Json) -> Json:
    return {name: value for name, value in reply.items() if name != "ref"}


def anns_rows(folder: Path) -> list[list[Json]]:
    tables = ("chats", "chat_messages", "reply_variants", "session_states", "paused_turns", "system_prompts", "tasks", "notes")
    return [rows(folder, f"SELECT * FROM {table} ORDER BY 1") for table in tables]


async def test_ids_of_another_user_are_answered_as_ids_of_nothing_by_every_command(tmp_path: Path, fake: FakeOllama) -> None:
    """N08."""
    async with two(tmp_path, fake) as (ann, ben):
        foreign = await chat_with_everything(ann, fake, "canary")
        waiting_chat, call_id = await paused_call(ann, fake)
        foreign["call_id"] = call_id
        mine = await ben.new_chat(title="mine")
        assert {kind for kind in KINDS if not ids_in(kind)} == NAMING_NOTHING
        before, heard = anns_rows(tmp_path), len(ann.events)
        for kind in [*sorted(set(KINDS) - NAMING_NOTHING - {"chat.delete"}), "chat.delete"]:
            names = ids_in(kind)
            values = {**VALUES, "answer": ANSWERS.get(kind)}
            for own in [(), ("chat_id",)] if "chat_id" in names and len(names) > 1 else [()]:
                random = {name: mine if name in own else RANDOM[name] for name in names}
                theirs = {name: mine if name in own else foreign[name] for name in names}
                if kind == "tool.answer" and not own:
                    theirs["chat_id"] = waiting_chat
                assert told(await ben.command(kind, **values, **theirs)) == told(await ben.command(kind, **values, **random)), (kind, own)
        assert anns_rows(tmp_path) == before
        assert len(ann.events) == heard
        assert "canary" not in json.dumps(ben.events)


async def test_numbers_of_anothers_facts_are_answered_as_numbers_of_nothing_by_every_tool(tmp_path: Path, fake: FakeOllama) -> None:
    async with two(tmp_path, fake) as (ann, ben):
        theirs = await ann.new_chat()
        for title in ("canary", "canary deleted"):
            await ann.press(theirs, "task_add", title=title)
            await ann.press(theirs, "note_save", title=title, content=title)
        await ann.press(theirs, "task_delete", id=2)
        await ann.press(theirs, "note_delete", id=2)
        await ann.press(theirs, "snapshot_take", label="canary")
        before = [rows(tmp_path, f"SELECT * FROM {table} WHERE owner = 'ann'") for table in ("tasks", "notes", "deleted_facts")]
        mine = await ben.new_chat()
        tools = [tool for tool in (await ben.ok("tool.list"))["tools"] if {"id", "a"} & tool["parameters"]["properties"].keys()]
        assert len(tools) >= 8
        for tool in tools:
            name = "id" if "id" in tool["parameters"]["properties"] else "a"
            extra = {"title": "x", "content": "x"} if tool["name"] == "note_save" else {"title": "x"} if tool["name"] == "task_update" else {}
            cards = {}
            for number in (1, 2, 9):
                end = await ben.press(mine, tool["name"], **{name: number}, **extra)
                card = (await ben.messages(mine))[-2]["card"] if end["status"] == "complete" else None
                cards[number] = json.dumps([{**end, "turn_id": None, "seq": None}, card]).replace(f" {number}", " N")
            assert cards[1] == cards[2] == cards[9], tool["name"]
        assert before == [rows(tmp_path, f"SELECT * FROM {table} WHERE owner = 'ann'") for table in ("tasks", "notes", "deleted_facts")]
        assert "canary" not in json.dumps(ben.events)


async def test_nothing_that_one_does_or_has_is_told_to_the_other(tmp_path: Path, fake: FakeOllama) -> None:
    async with two(tmp_path, fake) as (ann, ben):
        await chat_with_everything(ann, fake, "canary")
        doomed = await ann.new_chat(title="canary")
        await ann.ok("chat.rename", chat_id=doomed, title="canary again")
        await ann.ok("chat.delete", chat_id=doomed)
        assert ben.events == []

        mine = await ben.new_chat(title="mine")
        assert (await ben.ok("chat.search", query="canary"))["hits"] == []
        assert len((await ann.ok("chat.search", query="canary"))["hits"]) == 2
        facts = await ben.ok("facts.get", chat_id=mine)
        assert (facts["tasks"], facts["notes"], facts["deleted"], facts["prompts"]) == ([], [], [], [])
        for sql in ("SELECT * FROM tasks", "SELECT * FROM notes", "SELECT content FROM prompts UNION SELECT content FROM messages"):
            await ben.press(mine, "data_query", sql=sql)
        await ben.press(mine, "task_list")
        await ben.press(mine, "note_list")
        fake.script(script.reply("ok"))
        await ben.say(mine, "what is there?")
        assert "canary" not in json.dumps(fake.requests[-1].body)
        assert "canary" not in json.dumps([ben.events, await ben.ok("context.inspect", chat_id=mine), await ben.ok("context.sent", chat_id=mine)])
        await ann.press((await ann.new_chat()), "data_query", sql="SELECT title FROM tasks")
        assert "canary" in json.dumps(ann.events[-6:])


async def test_the_same_names_of_two_users_are_two_things(tmp_path: Path, fake: FakeOllama) -> None:
    """A page's own names for its chats, the marks of imported ones, and the numbers of forks."""
    async with two(tmp_path, fake) as (ann, ben):
        created = [(await client.ok("chat.create", client_id="same", title="t"))["chat"] for client in (ann, ben, ann, ben)]
        assert [chat["id"] for chat in created[:2]] == [chat["id"] for chat in created[2:]]
        assert created[0]["id"] != created[1]["id"]
        content = (await ann.ok("chat.export", chat_id=await said(ann, fake), format="json"))["content"]
        taken = [await client.ok("chat.import", content=content) for client in (ann, ben, ben)]
        assert [len(outcome["chats"]) for outcome in taken] == [1, 1, 0]
        assert taken[0]["chat"]["id"] != taken[1]["chat"]["id"] == taken[2]["chat"]["id"]
        assert all("owner" not in chat for chat in (created[0], taken[0]["chat"], ann.of("chat.created")[0]["chat"]))


async def test_a_welcome_lists_ones_own_chats(tmp_path: Path, fake: FakeOllama) -> None:
    settings = make_settings(tmp_path, fake, identity_header="X-Forwarded-User", trusted_proxies="127.0.0.1")
    async with running(settings) as address:
        for name in ("ann", "ben"):
            async with Client.connect(address, additional_headers={"X-Forwarded-User": name}) as client:
                assert client.welcome["chats"] == []
                await client.new_chat(title=f"{name}'s")
        async with Client.connect(address, additional_headers={"X-Forwarded-User": "ann"}) as client:
            assert [chat["title"] for chat in client.welcome["chats"]] == ["ann's"]


async def said(client: Client, fake: FakeOllama) -> Any:
    fake.script(script.reply("an answer"))
    chat = await client.new_chat(title="told")
    await client.say(chat, "a question")
    return chat
