"""One function per command, thin: it calls a service and shapes the reply."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from backend import protocol
from backend.connection import Connection, Result
from backend.llm.core.registry import Registry
from backend.services.archives import Archives
from backend.services.chats import Chats
from backend.services.contexts import Contexts
from backend.services.facts import Facts
from backend.services.forks import Forks
from backend.services.models import Models
from backend.services.ownership import Ownership
from backend.services.search import Search
from backend.services.turns import Turns
from backend.services.variants import Variants


@dataclass(frozen=True, slots=True)
class Commands:
    """What commands act on."""

    ownership: Ownership
    chats: Chats
    archives: Archives
    forks: Forks
    search: Search
    turns: Turns
    variants: Variants
    contexts: Contexts
    models: Models
    facts: Facts
    registry: Registry

    async def dispatch(self, connection: Connection, command: protocol.Command) -> Result | None:
        """Carry out a command on what is the user's own; its result, or None when it has replied by itself."""
        await self.ownership.chat_of(connection.user, command)
        return await _HANDLERS[type(command)](self, connection, command)


async def chat_create(commands: Commands, connection: Connection, command: protocol.ChatCreate) -> Result:
    return {"chat": await commands.chats.create(connection.user, command.title, command.model, command.client_id, temporary=command.temporary)}


async def chat_rename(commands: Commands, _: Connection, command: protocol.ChatRename) -> Result:
    return {"chat": await commands.chats.rename(command.chat_id, command.title)}


async def chat_update(commands: Commands, _: Connection, command: protocol.ChatUpdate) -> Result:
    fields = command.model_dump(exclude_unset=True, include={"pinned", "model", "ttl_messages", "approval", "families_off", "temporary"})
    if "families_off" in fields:
        fields["families_off"] = json.dumps(sorted(set(fields["families_off"])))
    if "parameters" in command.model_fields_set:
        fields["parameters"] = command.parameters.model_dump_json()
    return {"chat": await commands.chats.update(command.chat_id, **fields)}


async def chat_delete(commands: Commands, _: Connection, command: protocol.ChatDelete) -> Result:
    await commands.chats.delete(command.chat_id)
    return {}


async def chat_open(commands: Commands, connection: Connection, command: protocol.ChatOpen) -> None:
    """Subscribe: the missed events when the log still has them, else a snapshot. The reply goes first."""
    hub, outbox, chat_id = connection.hub, connection.outbox, command.chat_id
    if await connection.resume(command):
        return

    def subscribe(snapshot: dict[str, Any]) -> None:
        connection.reply(command, {"epoch": hub.epoch, "seq": hub.seq(chat_id), "resumed": False, **snapshot})
        hub.subscribe(chat_id, outbox)

    await commands.chats.snapshot(chat_id, command.limit, subscribe)


async def chat_close(commands: Commands, connection: Connection, command: protocol.ChatClose) -> Result:
    connection.hub.unsubscribe(command.chat_id, connection.outbox)
    return {}


async def chat_history(commands: Commands, _: Connection, command: protocol.ChatHistory) -> Result:
    page, has_more = await commands.chats.history(command.chat_id, command.before_id, command.limit)
    return {"messages": page, "has_more": has_more}


async def chat_search(commands: Commands, connection: Connection, command: protocol.ChatSearch) -> Result:
    return {"hits": await commands.search.search(connection.user, command.query, command.chat_id, command.limit)}


async def chat_export(commands: Commands, _: Connection, command: protocol.ChatExport) -> Result:
    filename, content = await commands.archives.export(command.chat_id, command.format)
    return {"filename": filename, "content": content}


async def chat_import(commands: Commands, connection: Connection, command: protocol.ChatImport) -> Result:
    return await commands.archives.take_in(connection.user, command.content)


async def chat_fork(commands: Commands, connection: Connection, command: protocol.ChatFork) -> Result:
    return {"chat": await commands.forks.fork(connection.user, command.chat_id, command.message_id, command.client_id)}


async def message_send(commands: Commands, _: Connection, command: protocol.MessageSend) -> Result:
    message, turn_id = await commands.turns.send(command.chat_id, command.client_id, command.text)
    return {"message": message, "turn_id": turn_id}


async def message_edit(commands: Commands, _: Connection, command: protocol.MessageEdit) -> Result:
    message, turn_id = await commands.turns.edit(command.message_id, command.text)
    return {"message": message, "turn_id": turn_id}


async def message_hide(commands: Commands, _: Connection, command: protocol.MessageHide) -> Result:
    return {"message": await commands.contexts.hide(command.message_id, command.hidden)}


async def message_variant(commands: Commands, _: Connection, command: protocol.MessageVariant) -> Result:
    return {"message": await commands.variants.show(command.message_id, command.index)}


async def turn_stop(commands: Commands, _: Connection, command: protocol.TurnStop) -> Result:
    await commands.turns.stop(command.chat_id)
    return {}


async def turn_regenerate(commands: Commands, _: Connection, command: protocol.TurnRegenerate) -> Result:
    return {"turn_id": await commands.turns.regenerate(command.chat_id)}


async def turn_continue(commands: Commands, _: Connection, command: protocol.TurnContinue) -> Result:
    return {"turn_id": await commands.turns.continue_reply(command.chat_id)}


async def tool_invoke(commands: Commands, _: Connection, command: protocol.ToolInvoke) -> Result:
    return {"turn_id": await commands.turns.invoke(command.chat_id, command.client_id, command.tool, command.arguments)}


async def tool_answer(commands: Commands, _: Connection, command: protocol.ToolAnswer) -> Result:
    await commands.turns.answer_call(command.chat_id, command.call_id, command.answer)
    return {}


async def facts_get(commands: Commands, _: Connection, command: protocol.FactsGet) -> Result:
    return await commands.facts.get(command.chat_id)


async def tool_list(commands: Commands, _: Connection, command: protocol.ToolList) -> Result:
    tools = [
        {
            "name": tool.name,
            "family": tool.family.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "effect": tool.effect,
            "entry": tool.is_entry,
            "for_model": tool.for_model,
            "is_helper": tool.family.is_helper,
        }
        for tool in commands.registry
    ]
    return {"tools": tools}


async def transaction_answer(commands: Commands, _: Connection, command: protocol.TransactionAnswer) -> Result:
    return {"context": await commands.contexts.answer(command.chat_id, command.transaction_id, command.answer)}


async def context_get(commands: Commands, _: Connection, command: protocol.ContextGet) -> Result:
    return {"context": await commands.contexts.get(command.chat_id)}


async def context_inspect(commands: Commands, _: Connection, command: protocol.ContextInspect) -> Result:
    return await commands.contexts.inspect(command.chat_id)


async def context_sent(commands: Commands, _: Connection, command: protocol.ContextSent) -> Result:
    return {"sent": await commands.contexts.sent(command.chat_id)}


async def context_keep(commands: Commands, _: Connection, command: protocol.ContextKeep) -> Result:
    return {"context": await commands.contexts.keep(command.chat_id)}


async def context_clear(commands: Commands, _: Connection, command: protocol.ContextClear) -> Result:
    return {"context": await commands.contexts.clear(command.chat_id)}


async def context_undo(commands: Commands, _: Connection, command: protocol.ContextUndo) -> Result:
    return {"context": await commands.contexts.undo(command.chat_id)}


async def models_refresh(commands: Commands, _: Connection, command: protocol.ModelsRefresh) -> Result:
    return await commands.models.refresh()


async def model_update(commands: Commands, _: Connection, command: protocol.ModelUpdate) -> Result:
    return await commands.models.set_window(command.name, command.num_ctx)


async def model_pull(commands: Commands, _: Connection, command: protocol.ModelPull) -> Result:
    return {"pull": await commands.models.pull(command.name)}


async def model_pull_cancel(commands: Commands, _: Connection, command: protocol.ModelPullCancel) -> Result:
    await commands.models.cancel_pull(command.name)
    return {}


Handler = Callable[[Commands, Connection, Any], Awaitable[Result | None]]

_HANDLERS: dict[type[protocol.Command], Handler] = {
    protocol.ChatCreate: chat_create,
    protocol.ChatRename: chat_rename,
    protocol.ChatUpdate: chat_update,
    protocol.ChatDelete: chat_delete,
    protocol.ChatOpen: chat_open,
    protocol.ChatClose: chat_close,
    protocol.ChatHistory: chat_history,
    protocol.ChatSearch: chat_search,
    protocol.ChatExport: chat_export,
    protocol.ChatImport: chat_import,
    protocol.ChatFork: chat_fork,
    protocol.MessageSend: message_send,
    protocol.MessageEdit: message_edit,
    protocol.MessageHide: message_hide,
    protocol.MessageVariant: message_variant,
    protocol.TurnStop: turn_stop,
    protocol.TurnRegenerate: turn_regenerate,
    protocol.TurnContinue: turn_continue,
    protocol.ToolInvoke: tool_invoke,
    protocol.ToolAnswer: tool_answer,
    protocol.ToolList: tool_list,
    protocol.FactsGet: facts_get,
    protocol.TransactionAnswer: transaction_answer,
    protocol.ContextGet: context_get,
    protocol.ContextInspect: context_inspect,
    protocol.ContextSent: context_sent,
    protocol.ContextKeep: context_keep,
    protocol.ContextClear: context_clear,
    protocol.ContextUndo: context_undo,
    protocol.ModelsRefresh: models_refresh,
    protocol.ModelUpdate: model_update,
    protocol.ModelPull: model_pull,
    protocol.ModelPullCancel: model_pull_cancel,
}
