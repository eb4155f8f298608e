"""A chat as a snapshot and the events after it make it, and the check that a new snapshot says the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.server import Client, Json

SNAPSHOT_LIMIT = 500


class Replica:
    """A chat the way a page holds it: one reply to `chat.open`, then events in the order in which they came."""

    def __init__(self, opened: Json) -> None:
        self.epoch: str = opened["epoch"]
        self.seq: int = opened["seq"]
        self.chat: Json | None = opened["chat"]
        self.context: Json = opened["context"]
        self.messages: dict[int, Json] = {message["id"]: message for message in opened["messages"]}
        self.finished_turns: list[str] = []

    @property
    def shown(self) -> Json:
        """What a snapshot would say."""
        messages = [self.messages[message_id] for message_id in sorted(self.messages)]
        return {"seq": self.seq, "chat": self.chat, "messages": messages, "context": self.context}

    def text(self, message_id: int) -> str:
        return str(self.messages[message_id]["content"])

    def apply(self, event: Json) -> None:
        """Take in an event; one that is known already changes nothing. A gap is an error of the server."""
        if "seq" not in event:
            return self._apply_broadcast(event)
        seq: int = event["seq"]
        if seq <= self.seq:
            return None
        assert event.get("first_seq", seq) <= self.seq + 1, f"events are missing between {self.seq} and {event}"
        self.seq = seq
        return self._apply(event)

    def _apply_broadcast(self, event: Json) -> None:
        if event["type"] == "chat.updated":
            self.chat = event["chat"]
        elif event["type"] == "chat.deleted":
            self.chat, self.messages = None, {}

    def _apply(self, event: Json) -> None:
        match event["type"]:
            case "message.created" | "message.completed" | "message.updated":
                self._put(event["message"])
            case "message.delta":
                self._grow(event)
            case "message.deleted" | "context.cleared":
                for message_id in event["message_ids"]:
                    del self.messages[message_id]
            case "context.restored":
                for message in event["messages"]:
                    self._put(message)
            case "context.state":
                self.context = event["context"]
            case "transaction_completed":
                pending = {name: event[name] for name in ("transaction_id", "tool", "summary")}
                self.context = {**self.context, "pending_transaction": pending}
            case "transaction.closed":
                pending = self.context["pending_transaction"]
                if pending is not None and pending["transaction_id"] == event["transaction_id"]:
                    self.context = {**self.context, "pending_transaction": None}
            case "turn.finished":
                self.finished_turns.append(event["turn_id"])
            case "turn.started" | "turn.waiting":
                pass
            case other:
                raise AssertionError(f"{other} is no event of a chat")

    def _put(self, message: Json) -> None:
        self.messages[message["id"]] = message

    def _grow(self, delta: Json) -> None:
        """Add the part of a delta that isn't held yet: a merged one may begin before what a snapshot had."""
        message = self.messages[delta["message_id"]]
        held = message.get(delta["channel"]) or ""
        known = len(held) - delta["offset"]
        assert 0 <= known <= len(delta["text"]), f"the text held has {len(held)} code points: {delta}"
        self.messages[message["id"]] = {**message, delta["channel"]: held + delta["text"][known:]}


def events_of(client: Client, chat_id: str) -> list[Json]:
    """A chat's events that came to a socket, and the broadcasts about it."""
    return [event for event in client.events if chat_id in (event.get("chat_id"), event.get("chat", {}).get("id"))]


def drop(client: Client) -> None:
    """Break a client's connection off as a lost network does: at once, with no close frame."""
    client._socket.transport.abort()


@asynccontextmanager
async def replayed(address: str, chat_id: str) -> AsyncIterator[Replica]:
    """Watch a chat from a socket of its own while the block changes it. At the block's end, when no turn may be
    running, the first snapshot and its events have to equal a new snapshot. The replica is filled then."""
    async with Client.connect(address) as watcher, Client.connect(address) as newcomer:
        replica = Replica(await watcher.ok("chat.open", chat_id=chat_id, limit=SNAPSHOT_LIMIT))
        yield replica
        fresh = await newcomer.command("chat.open", chat_id=chat_id, limit=SNAPSHOT_LIMIT)
        await watcher.ok("tool.list")  # frames keep their order: all that was published before has come
        for event in events_of(watcher, chat_id):
            replica.apply(event)
        expected = Replica(fresh).shown if fresh["type"] == "ok" else {**replica.shown, "chat": None, "messages": []}
        for part, value in expected.items():
            assert replica.shown[part] == value, f"the {part} of snapshot and events: {replica.shown[part]}, of a new snapshot: {value}"
