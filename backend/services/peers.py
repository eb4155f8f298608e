"""The other servers on the same database, as the services see them."""

from __future__ import annotations

from typing import Any, Protocol

from backend.hub import Hub
from backend.protocol import Command, Pull


class Peers(Protocol):
    @property
    def id(self) -> str:
        """This server's name among them."""

    @property
    def hub(self) -> Hub: ...

    @property
    def is_alone(self) -> bool:
        """Whether no other server can run on the database."""

    async def owns(self, chat_id: str) -> bool:
        """Whether the chat is this server's, which takes it up when it is nobody's. Raises Unreachable."""

    async def ask(self, chat_id: str, user: str, command: Command) -> dict[str, Any] | None:
        """What the server that has the chat replies to a user's command; None when it is this one, as `owns` says. Raises Unreachable."""

    def lose(self, chat_id: str) -> None:
        """The chat was found to be another server's: let go of it."""

    def turn_began(self, chat_id: str, turn_id: str) -> None:
        """A turn runs in the chat from now on: should this server end, another one sees to it."""

    def turn_ended(self, chat_id: str) -> None: ...

    def share_pull(self, key: str, pull: Pull) -> None:
        """Have the other servers know of a pull of this one as it stands, until it ends."""

    async def shared_pulls(self, *, with_own: bool) -> list[Pull]:
        """The pulls under way that other servers, or this one too, have shared. Raises Unreachable."""

    async def running(self) -> set[str]:
        """The chats in which a turn runs, at whichever server. Raises Unreachable."""
