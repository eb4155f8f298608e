"""Whose a fact is, told by the chat that asks for it: facts belong to a user, and a chat has one owner for good."""

from __future__ import annotations

# The owner of the chat `:session_id`, for a statement's own use.
OWNER = "(SELECT owner FROM chats WHERE id = :session_id)"
