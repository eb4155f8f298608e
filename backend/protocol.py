"""The wire, version 1: every command, reply and event, and how a frame becomes a command.

The only definition of these shapes; it does no I/O and knows neither the database nor the model.
Commands are strict about JSON types and ignore fields that they don't know.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Annotated, Any, ClassVar, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from backend.errors import Invalid
from backend.text import clean_text

PROTOCOL_VERSION = 1

# Deeper than any arguments of a tool; Python's own limit is about 1,000 and raises RecursionError.
MAX_NESTING = 64

# Above 2**53 a browser's numbers are no longer exact.
MAX_INTEGER = 2**53 - 1

Role = Literal["user", "assistant", "tool"]
Status = Literal["streaming", "complete", "stopped", "interrupted", "failed"]
TurnStatus = Literal["complete", "stopped", "interrupted", "failed"]
ClearReason = Literal["confirmed", "expired", "switched", "manual"]
Answer = Literal["yes", "no"]
Channel = Literal["content", "thinking"]


def _is_none(value: object) -> bool:
    return value is None


def _is_false(value: object) -> bool:
    return not value


# An optional field of an object: absent on the wire when there is nothing to say.
Optional = Field(default=None, exclude_if=_is_none)


class BadFrame(Exception):
    """The frame is no JSON object that could be a command; the connection stays open."""


# --- objects


class Parameters(BaseModel):
    """How a chat's model is asked; an absent one is left to the model."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    temperature: float | None = Field(default=None, ge=0, le=2, exclude_if=_is_none)
    think: Literal["off", "on", "low", "medium", "high"] | None = Optional
    keep_alive: Literal["0", "5m", "30m", "2h", "-1"] | None = Optional


class Chat(BaseModel):
    """A row of `chats` as the person sees it; `owner` stays here, and says whose sockets hear of it."""

    owner: str = Field(exclude=True)
    id: str
    title: str
    pinned: bool
    model: str | None
    ttl_messages: int
    approval: Literal["after", "before"]
    families_off: list[str]
    temporary: bool
    parameters: Parameters
    created_at: str
    updated_at: str
    turn_running: bool


class Variant(BaseModel):
    """Which of the replies to one message this is, counted from 1."""

    index: int
    count: int


class Message(BaseModel):
    """A row of `chat_messages` as the person sees it."""

    id: int
    chat_id: str
    role: Role
    content: str
    is_ephemeral: Literal[0, 1]
    hidden: bool
    status: Status
    created_at: str
    turn_id: str | None
    client_id: str | None = Optional
    family: str | None = Optional
    tool: str | None = Optional
    card: dict[str, Any] | None = Optional
    thinking: str | None = Optional
    model: str | None = Optional
    metrics: dict[str, Any] | None = Optional
    transaction_completed: bool = Field(default=False, exclude_if=_is_false)
    variant: Variant | None = Optional


class PendingTransaction(BaseModel):
    transaction_id: str
    tool: str
    summary: str


class ContextState(BaseModel):
    """What a chat's model is given and what it is spared.

    `saved_tokens` are the tokens of cards, drafts and interim texts in this chat that the next message does not carry:
    what is there now and what was cleared. `in_hand` are the subjects of cards whose newest state goes out as the
    working state.
    """

    active_tool: str | None
    unrelated_count: int
    ttl_messages: int
    ephemeral_messages: int
    ephemeral_tokens: int
    history_messages: int
    history_tokens: int
    token_count: Literal["exact", "estimated"] = "estimated"
    pending_transaction: PendingTransaction | None
    undo_until: str | None = None
    saved_tokens: int
    in_hand: list[str]


class Model(BaseModel):
    """A model that can be chosen; None where its server does not say. The memory of its context is `num_ctx * kv_bytes_per_token`."""

    name: str
    size_bytes: int | None
    context_length: int | None
    num_ctx: int
    kv_bytes_per_token: int | None
    capabilities: list[str]
    parameter_size: str | None
    quantization: str | None


class TurnError(BaseModel):
    code: str
    message: str


class Pull(BaseModel):
    """A model that the server is fetching, or was; bytes are those of all files seen so far."""

    name: str
    status: Literal["running", "complete", "failed", "cancelled"]
    step: str = ""
    completed: int | None = None
    total: int | None = None
    error: TurnError | None = None


class SearchHit(BaseModel):
    chat_id: str
    message_id: int
    snippet: str
    role: Role
    created_at: str
    title: str


# --- commands


class Command(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    # A slow command is carried out beside the socket's next ones, which it must not hold up.
    is_slow: ClassVar[bool] = False
    # What a command names has to be there and the user's own, before anything else is looked at.
    is_owner_checked: ClassVar[bool] = True

    ref: str | None = None


ChatId = Annotated[str, StringConstraints(min_length=1, max_length=200)]
ClientId = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000)]
Limit = Annotated[int, Field(ge=1, le=500)]
MessageId = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
ModelName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=300)]


class ChatCommand(Command):
    chat_id: ChatId


class ChatCreate(Command):
    type: Literal["chat.create"]
    title: Title | None = None
    model: str | None = Field(default=None, max_length=300)
    client_id: ClientId | None = None
    temporary: bool = False


class ChatRename(ChatCommand):
    type: Literal["chat.rename"]
    title: Title


class ChatUpdate(ChatCommand):
    """Only the fields that were sent are written; null gives `model` and `ttl_messages` back to the settings."""

    type: Literal["chat.update"]
    pinned: bool = False
    model: str | None = Field(default=None, max_length=300)
    ttl_messages: int | None = Field(default=None, ge=3, le=5)
    approval: Literal["after", "before"] = "after"
    families_off: list[Annotated[str, StringConstraints(max_length=100)]] = Field(default_factory=list, max_length=50)
    parameters: Parameters = Field(default_factory=Parameters)
    temporary: Literal[False] = False


class ChatDelete(ChatCommand):
    type: Literal["chat.delete"]


class ChatOpen(ChatCommand):
    type: Literal["chat.open"]
    epoch: str | None = None
    after_seq: int | None = Field(default=None, ge=0, le=MAX_INTEGER)
    limit: Limit = 100


class ChatClose(ChatCommand):
    # It touches the socket's own subscriptions alone, and the same is said whether there is such a chat or not.
    is_owner_checked = False

    type: Literal["chat.close"]


class ChatHistory(ChatCommand):
    type: Literal["chat.history"]
    before_id: int = Field(ge=0, le=MAX_INTEGER)
    limit: Limit = 100


class ChatSearch(Command):
    type: Literal["chat.search"]
    query: Annotated[str, StringConstraints(max_length=1_000)]
    chat_id: ChatId | None = None
    limit: Limit = 30


class ChatExport(ChatCommand):
    type: Literal["chat.export"]
    format: Literal["json", "markdown"]


class ChatImport(Command):
    is_slow = True

    type: Literal["chat.import"]
    content: str


class ChatFork(ChatCommand):
    type: Literal["chat.fork"]
    message_id: MessageId
    client_id: ClientId | None = None


class MessageSend(ChatCommand):
    type: Literal["message.send"]
    client_id: ClientId
    text: str


class MessageEdit(Command):
    type: Literal["message.edit"]
    message_id: MessageId
    text: str


class MessageHide(Command):
    type: Literal["message.hide"]
    message_id: MessageId
    hidden: bool


class MessageVariant(Command):
    type: Literal["message.variant"]
    message_id: MessageId
    index: int = Field(ge=1, le=MAX_INTEGER)


class TurnStop(ChatCommand):
    type: Literal["turn.stop"]


class TurnRegenerate(ChatCommand):
    type: Literal["turn.regenerate"]


class TurnContinue(ChatCommand):
    type: Literal["turn.continue"]


class ToolInvoke(ChatCommand):
    type: Literal["tool.invoke"]
    client_id: ClientId
    tool: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    arguments: dict[str, Any] = Field(default_factory=dict)


class ToolAnswer(ChatCommand):
    type: Literal["tool.answer"]
    call_id: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    answer: Literal["allow", "deny"]


class ToolList(Command):
    type: Literal["tool.list"]


class FactsGet(ChatCommand):
    type: Literal["facts.get"]


class TransactionAnswer(ChatCommand):
    type: Literal["transaction.answer"]
    transaction_id: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    answer: Answer


class ContextGet(ChatCommand):
    type: Literal["context.get"]


class ContextInspect(ChatCommand):
    type: Literal["context.inspect"]


class ContextSent(ChatCommand):
    type: Literal["context.sent"]


class ContextKeep(ChatCommand):
    type: Literal["context.keep"]


class ContextClear(ChatCommand):
    type: Literal["context.clear"]


class ContextUndo(ChatCommand):
    type: Literal["context.undo"]


class ModelsRefresh(Command):
    is_slow = True

    type: Literal["models.refresh"]


class ModelUpdate(Command):
    """The model's window for all chats; null gives it back to the settings."""

    type: Literal["model.update"]
    name: ModelName
    num_ctx: int | None = Field(ge=256, le=1_048_576)


class ModelPull(Command):
    type: Literal["model.pull"]
    name: ModelName


class ModelPullCancel(Command):
    type: Literal["model.pull_cancel"]
    name: ModelName


AnyCommand = Annotated[
    ChatCreate
    | ChatRename
    | ChatUpdate
    | ChatDelete
    | ChatOpen
    | ChatClose
    | ChatHistory
    | ChatSearch
    | ChatExport
    | ChatImport
    | ChatFork
    | MessageSend
    | MessageEdit
    | MessageHide
    | MessageVariant
    | TurnStop
    | TurnRegenerate
    | TurnContinue
    | ToolInvoke
    | ToolAnswer
    | ToolList
    | FactsGet
    | TransactionAnswer
    | ContextGet
    | ContextInspect
    | ContextSent
    | ContextKeep
    | ContextClear
    | ContextUndo
    | ModelsRefresh
    | ModelUpdate
    | ModelPull
    | ModelPullCancel,
    Field(discriminator="type"),
]

_commands: TypeAdapter[Command] = TypeAdapter(AnyCommand)


# --- events


class Event(BaseModel):
    """What a chat's subscribers get; `seq` is set when it enters the chat's log."""

    type: str
    chat_id: str
    seq: int = 0


class UserEvent(BaseModel):
    """What every socket of one user gets, outside the sequence; `user` does not go out."""

    user: str = Field(exclude=True)


class ChatEvent(UserEvent):
    type: Literal["chat.created", "chat.updated"]
    chat: Chat


class ChatDeleted(UserEvent):
    type: Literal["chat.deleted"] = "chat.deleted"
    chat_id: str


class FactsChanged(UserEvent):
    """A tool of these families changed what the database holds."""

    type: Literal["facts.changed"] = "facts.changed"
    families: list[str]


class ModelsUpdated(BaseModel):
    """Another server answers now, or it offers other models (every socket)."""

    type: Literal["models.updated"] = "models.updated"
    models: list[Model]
    default_model: str | None
    model_backend: Literal["ollama", "embedded", "none"]
    model_server: str


class ModelPulled(BaseModel):
    """How far a pull has come (every socket)."""

    type: Literal["model.pull"] = "model.pull"
    pull: Pull


class TurnStarted(Event):
    type: Literal["turn.started"] = "turn.started"
    turn_id: str


class TurnWaiting(Event):
    type: Literal["turn.waiting"] = "turn.waiting"
    turn_id: str
    reason: Literal["model_busy", "model_loading", "approval", "storage"]


class MessageCreated(Event):
    type: Literal["message.created"] = "message.created"
    message: Message


@dataclasses.dataclass(slots=True)
class MessageDelta:
    """A streamed piece, an event of its chat like the others. `offset` counts Unicode code points of that channel's text
    before it; `first_seq` is the number of the first one that this one joins, None when it stands for itself.

    One comes with each token: a model of pydantic takes four times as long to build and to encode.
    """

    chat_id: str
    message_id: int
    channel: Channel
    offset: int
    text: str
    seq: int = 0
    first_seq: int | None = None

    def model_dump_json(self) -> str:
        fields: dict[str, Any] = {
            "type": "message.delta",
            "chat_id": self.chat_id,
            "seq": self.seq,
            "message_id": self.message_id,
            "channel": self.channel,
            "offset": self.offset,
            "text": self.text,
        }
        if self.first_seq is not None:
            fields["first_seq"] = self.first_seq
        return to_json(fields).decode()


_DELTA_FIELDS = [field.name for field in dataclasses.fields(MessageDelta)]


def delta_in(frame: str) -> MessageDelta | None:
    """The delta that a frame of ours holds, maybe of a newer version's with more in it; None for another event's."""
    if not frame.startswith('{"type":"message.delta"'):
        return None
    read = from_json(frame)
    return MessageDelta(**{name: read[name] for name in _DELTA_FIELDS if name in read})


class MessageUpdated(Event):
    type: Literal["message.updated"] = "message.updated"
    message: Message


class MessageCompleted(Event):
    type: Literal["message.completed"] = "message.completed"
    message: Message


class MessageDeleted(Event):
    type: Literal["message.deleted"] = "message.deleted"
    message_ids: list[int]


class TurnFinished(Event):
    type: Literal["turn.finished"] = "turn.finished"
    turn_id: str
    status: TurnStatus
    error: TurnError | None = Optional


class TransactionCompleted(Event):
    type: Literal["transaction_completed"] = "transaction_completed"
    transaction_completed: Literal[True] = True
    transaction_id: str
    tool: str
    summary: str


class TransactionClosed(Event):
    type: Literal["transaction.closed"] = "transaction.closed"
    transaction_id: str
    answer: Literal["yes", "no", "expired"]


class ContextStateChanged(Event):
    type: Literal["context.state"] = "context.state"
    context: ContextState


class ContextCleared(Event):
    """`undo_until` is None for `confirmed`, which can't be undone."""

    type: Literal["context.cleared"] = "context.cleared"
    reason: ClearReason
    family: str | None
    message_ids: list[int]
    messages: int
    tokens: int
    undo_until: str | None


class ContextRestored(Event):
    type: Literal["context.restored"] = "context.restored"
    messages: list[Message]


# --- frames


def decode_command(frame: str) -> Command:
    """Parse one text frame. Raises BadFrame, or Invalid with the fields that are wrong.

    An unknown `type` raises UnknownCommand; the caller answers with the frame's own `ref`.
    """
    values = decode_object(frame)
    try:
        return _commands.validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "union_tag_invalid":
            raise UnknownCommand(str(values["type"])) from None
        raise invalid_fields(error, skip=1) from None


class UnknownCommand(Exception):
    """The frame's `type` names no command of this version."""


def invalid_fields(error: ValidationError, skip: int = 0) -> Invalid:
    """Turn a validation error into Invalid; `skip` leaves out the outer parts of each location."""
    fields = {
        ".".join(str(part) for part in item["loc"][skip:]) or "value": item["msg"]
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    }
    named = "; ".join(f"{name}: {reason}" for name, reason in fields.items())
    return Invalid(f"Please correct this: {named}.", fields)


def decode_object(frame: str) -> dict[str, Any]:
    """Parse a JSON object with a string `type`, cleaned of lone surrogates and NUL. Raises BadFrame."""
    try:
        value = json.loads(frame, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
        value = _clean(value, 0)
    except (ValueError, RecursionError) as error:
        raise BadFrame("The frame is not JSON that can be read: one object with a string 'type' is expected.") from error
    if not isinstance(value, dict):
        raise BadFrame("The frame is not a JSON object: one with a string 'type' is expected.")
    if not isinstance(value.get("type"), str):
        raise BadFrame("The frame has no string 'type', which names the command.")
    return value


def ref_of(frame: str) -> str | None:
    """Return the `ref` of a frame that was refused, so that the client knows which; None when there is none."""
    try:
        ref = json.loads(frame)["ref"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return clean_text(ref) if isinstance(ref, str) else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key stands twice")
    if "__proto__" in values:
        raise ValueError("__proto__ is no field")
    return values


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("the number is too large")
    return number


def _clean(value: Any, depth: int) -> Any:
    if depth > MAX_NESTING:
        raise ValueError("nested too deep")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): _clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item, depth + 1) for item in value]
    return value


def encode_ok(ref: str | None, result: dict[str, Any]) -> str:
    """Encode the reply to a command that succeeded; `result` may hold models of this module."""
    return _encode({"type": "ok", "ref": ref, **result})


def encode_error(ref: str | None, code: str, message: str, fields: dict[str, str] | None = None) -> str:
    """Encode the reply to a command that was refused."""
    return _encode({"type": "error", "ref": ref, "code": code, "message": message, **({"fields": fields} if fields else {})})


def encode_welcome(values: dict[str, Any]) -> str:
    """Encode the first frame of a connection."""
    return _encode({"type": "welcome", "protocol": PROTOCOL_VERSION, **values})


_any: TypeAdapter[Any] = TypeAdapter(Any)


def _encode(value: dict[str, Any]) -> str:
    return _any.dump_json(value, exclude_none=False).decode()
