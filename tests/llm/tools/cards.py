"""Cards as a person uses them: find the newest one, press its buttons."""

from __future__ import annotations

from tests.server import Client, Json


async def newest_card(client: Client, chat: str) -> Json:
    return dict([message for message in await client.messages(chat) if message.get("card")][-1]["card"])


def labels(card: Json) -> list[str]:
    return [action["label"] for action in card["actions"]]


async def push(client: Client, chat: str, card: Json, label: str, **changed: object) -> Json:
    """Press a card's (or an item's) button, which has to work; the card that comes of it."""
    (button,) = [action for action in card["actions"] if action["label"] == label]
    ended = await client.press(chat, button["tool"], **{**button["arguments"], **changed})
    assert ended["status"] == "complete", ended
    return await newest_card(client, chat)
