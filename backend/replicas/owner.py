"""What a server is to the others on its database, and what it does for the chats that are its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from backend.connection import Dispatch
from backend.protocol import Command
from backend.services.peers import Peers

# Finds the chat that a user's command is for: None when there is none, NotFound when it does not exist or is another's.
ChatOf = Callable[[str, Command], Awaitable[str | None]]


class Owner(Protocol):
    """The services' part: what is to be done when a chat comes or goes."""

    async def recover_all(self) -> None:
        """Finish what was left unfinished in any chat; no other process runs on this database."""

    async def hold(self, chat_id: str, server: str) -> None:
        """Have the database know that the chat is this server's: what its last owner still writes is refused."""

    async def recover(self, chat_id: str, turn_id: str | None) -> None:
        """Finish what the last owner of one chat left, the turn `turn_id` among it."""

    async def unfinished(self) -> list[str]:
        """The chats in which a message is not whole, whoever sees to it."""

    def running_turn(self, chat_id: str) -> str | None:
        """The id of the turn that runs in the chat."""

    def is_replying(self, chat_id: str) -> bool:
        """Whether a turn runs in the chat that goes on by itself."""

    def forget(self, chat_id: str) -> None:
        """Let go of what is held of a chat in memory; a turn in it ends without writing anything more."""

    async def interrupt(self) -> None:
        """End every turn, keeping its text."""


class Replicas(Peers, Protocol):
    """All servers on one database, as one of them is made. Made before the services, which get its hub."""

    @property
    def is_ready(self) -> bool:
        """Whether the others can be reached."""

    def route(self, owner: Owner, dispatch: Dispatch, chat_of: ChatOf) -> Dispatch:
        """The way by which commands go from now on: to `dispatch` where their chat is."""

    async def begin(self) -> None:
        """Join the others, and see to what nobody sees to. Raises Unreachable."""

    async def leave(self) -> None:
        """The end begins: let the chats go that nothing runs in, and give replies under way the time to end."""

    async def close(self) -> None:
        """Let all chats go in good order; no turn may run any more."""
