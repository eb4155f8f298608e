"""Rows of `model_windows`: the window that a person gave a model, for all chats."""

from __future__ import annotations

from backend.store.connection import Connection


async def get_all(tx: Connection) -> dict[str, int]:
    """The chosen windows in tokens, by model."""
    return {row["model"]: row["num_ctx"] for row in await tx.fetch_all("SELECT model, num_ctx FROM model_windows")}


async def save(tx: Connection, model: str, num_ctx: int) -> None:
    await tx.execute(
        "INSERT INTO model_windows (model, num_ctx) VALUES (:model, :num_ctx) ON CONFLICT (model) DO UPDATE SET num_ctx = excluded.num_ctx",
        {"model": model, "num_ctx": num_ctx},
    )


async def delete(tx: Connection, model: str) -> None:
    await tx.execute("DELETE FROM model_windows WHERE model = :model", {"model": model})
