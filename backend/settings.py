"""Every setting: its environment variable, default, unit and meaning, checked once at the start.

The only module that reads the environment. The README's table is tested against `Settings`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, FilePath, ValidationError, ValidationInfo

from backend.errors import SettingsError

PROJECT_FOLDER = Path(__file__).resolve().parent.parent

OLLAMA_PORT = 11434
# A token that can't be guessed in a lifetime, and the word for having none.
MIN_TOKEN, OFF = 16, "off"
# Values that no message repeats.
SECRETS = ("CLEANROOM_ACCESS_TOKEN", "CLEANROOM_DATABASE_URL", "CLEANROOM_REDIS_URL")


DEFAULT_PORTS = {"http": 80, "https": 443}
# What a server may listen on but no client can ask for, and the address that stands for it on this machine.
LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}


Network = IPv4Network | IPv6Network


def _split_list(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _origins(values: tuple[str, ...]) -> tuple[str, ...]:
    """Check origins and write each as a browser does: lower case, no slash at the end, no default port."""
    return tuple(_origin(value.lower().removesuffix("/")) for value in values)


def _origin(text: str) -> str:
    reason = "must be origins such as https://chat.example.org, separated by commas"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(reason) from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or "@" in text or not text.isascii() or text != f"{parts.scheme}://{parts.netloc}":
        raise ValueError(reason)
    return text.removesuffix(f":{port}") if port == DEFAULT_PORTS[parts.scheme] else text


def _access_token(value: str) -> str:
    value = value.strip()
    if value != OFF and (len(value) < MIN_TOKEN or not value.isascii()):
        raise ValueError(f"must have at least {MIN_TOKEN} characters, plain ones such as `openssl rand -hex 16` makes, or be {OFF}")
    return value


def _header_name(value: str) -> str:
    value = value.strip()
    if not re.fullmatch(r"[A-Za-z0-9-]+", value):
        raise ValueError("must be the name of a header, such as X-Forwarded-User")
    return value


def _networks(values: Any) -> Any:
    try:
        return tuple(ip_network(value) for value in _split_list(values))
    except ValueError:
        raise ValueError("must be IP addresses or networks such as 127.0.0.1 or 10.0.0.0/24, separated by commas") from None


def _needed_for_identity(values: tuple[Network, ...], info: ValidationInfo) -> tuple[Network, ...]:
    if info.data.get("identity_header") and not values:
        raise ValueError("must hold the address of the proxy that sets CLEANROOM_IDENTITY_HEADER, such as 127.0.0.1")
    return values


def checked_database_url(value: str) -> str:
    """The URL of a database, as it is. Raises ValueError that does not quote it: it may have a password."""
    if value.startswith("sqlite:///") and value != "sqlite:///":
        return value
    reason = "must be sqlite:/// followed by the path of a file, or postgresql://user:password@host:port/database"
    try:
        parts = urlsplit(value)
        is_whole = parts.scheme == "postgresql" and parts.hostname and parts.path.strip("/") and parts.port != 0
    except ValueError:
        raise ValueError(reason) from None
    if not is_whole:
        raise ValueError(reason)
    return value


def _redis_url(value: str, info: ValidationInfo) -> str:
    if not info.data.get("database_url", "postgresql:").startswith("postgresql:"):
        raise ValueError("serves several servers on one PostgreSQL; set CLEANROOM_DATABASE_URL to that, too")
    reason = "must be redis:// or rediss://, a host, and maybe a port and a database's number"
    try:
        parts = urlsplit(value)
        number = parts.path.removeprefix("/")
        is_one = parts.scheme in ("redis", "rediss") and bool(parts.hostname) and parts.port != 0 and (number.isdecimal() or not number)
    except ValueError:
        is_one = False
    if not is_one:
        raise ValueError(reason)
    return value


def _ollama_url(value: str) -> str:
    """Resolve what `OLLAMA_HOST` may hold (host, :port, host:port, URL) as Ollama's own client does."""
    scheme, separator, rest = value.strip().rpartition("://")
    scheme = scheme.lower() if separator else "http"
    default_port = DEFAULT_PORTS.get(scheme) if separator else OLLAMA_PORT
    if rest.count(":") > 1 and not rest.startswith("["):  # a bare IPv6 address
        rest = f"[{rest}]"
    reason = "must be a host, host:port or http(s) URL"
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        port = parts.port or default_port
    except ValueError:
        raise ValueError(reason) from None
    if scheme not in DEFAULT_PORTS or parts.query or parts.fragment or "@" in rest or any(character.isspace() for character in rest):
        raise ValueError(reason)
    host = parts.hostname or "127.0.0.1"
    host = LOOPBACK_OF.get(host, host)
    if ":" in host:
        host = f"[{host}]"
    return f"{scheme}://{host}:{port}{parts.path.rstrip('/')}"


class Settings(BaseModel):
    """The server's settings. Each field's alias is its environment variable."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, validate_default=True)

    host: str = Field("127.0.0.1", alias="CLEANROOM_HOST", min_length=1, description="address to listen on")
    port: int = Field(8765, alias="CLEANROOM_PORT", ge=0, le=65535, description="port to listen on; 0 takes a free one")
    database_url: Annotated[str, AfterValidator(checked_database_url)] = Field(
        f"sqlite:///{PROJECT_FOLDER / 'data' / 'cleanroom.db'}",
        alias="CLEANROOM_DATABASE_URL",
        repr=False,
        description="where everything is kept: sqlite:/// and a path, or postgresql://user:password@host:port/database",
    )
    redis_url: Annotated[str, AfterValidator(_redis_url)] | None = Field(
        None,
        alias="CLEANROOM_REDIS_URL",
        repr=False,
        description="Redis or Valkey between several servers on one PostgreSQL, redis://host:6379/0; empty: this one is alone",
    )
    model: str | None = Field(None, alias="CLEANROOM_MODEL", description="model of new chats; empty: the first that the server lists")
    embedded: Literal["auto", "always", "never"] = Field(
        "auto", alias="CLEANROOM_EMBEDDED", description="when the embedded model answers: auto (no Ollama found), always, never"
    )
    embedded_model: FilePath | None = Field(None, alias="CLEANROOM_EMBEDDED_MODEL", description="a GGUF file for the embedded model")
    ttl_messages: int = Field(4, alias="CLEANROOM_TTL_MESSAGES", ge=3, le=5, description="unrelated messages until working material goes, 3 to 5")
    history_limit: int = Field(12, alias="CLEANROOM_HISTORY_LIMIT", ge=2, le=12, description="most messages of history that a model is sent")
    history_step: int = Field(6, alias="CLEANROOM_HISTORY_STEP", ge=1, le=12, description="messages by which the history's start moves; 1 slides it every turn")
    working_state_tokens: int = Field(
        600, alias="CLEANROOM_WORKING_STATE_TOKENS", ge=0, le=100_000, description="room for the working state in tokens; 0 sends none"
    )
    tool_result_tokens: int = Field(
        1500,
        alias="CLEANROOM_TOOL_RESULT_TOKENS",
        ge=100,
        le=100_000,
        description="most tokens of a tool's result that a model is given; the card has the whole",
    )
    num_ctx: int | None = Field(
        None, alias="CLEANROOM_NUM_CTX", ge=256, le=1_048_576, description="context window in tokens; empty: the model's own, at most 8192"
    )
    first_token_seconds: float = Field(
        600, alias="CLEANROOM_FIRST_TOKEN_SECONDS", gt=0, le=86_400, description="seconds to wait for a model's first word before giving up"
    )
    allowed_origins: Annotated[tuple[str, ...], BeforeValidator(_split_list), AfterValidator(_origins)] = Field(
        (), alias="CLEANROOM_ALLOWED_ORIGINS", description="further origins that may open the page, separated by commas"
    )
    access_token: Annotated[str, AfterValidator(_access_token)] | None = Field(
        None,
        alias="CLEANROOM_ACCESS_TOKEN",
        repr=False,
        description="what opens the page; needed beyond this machine. off: none, because something else keeps strangers out",
    )
    identity_header: Annotated[str, AfterValidator(_header_name)] | None = Field(
        None, alias="CLEANROOM_IDENTITY_HEADER", description="header in which a proxy names the user, such as X-Forwarded-User; empty: one local user"
    )
    trusted_proxies: Annotated[tuple[Network, ...], BeforeValidator(_networks), AfterValidator(_needed_for_identity)] = Field(
        (), alias="CLEANROOM_TRUSTED_PROXIES", description="addresses or networks whose identity header is believed, separated by commas"
    )
    max_message_bytes: int = Field(1_048_576, alias="CLEANROOM_MAX_MESSAGE_BYTES", ge=1024, le=16_777_216, description="longest message in bytes of UTF-8")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        alias="CLEANROOM_LOG_LEVEL",
        description="what is logged: debug (also the words of errors, which may quote texts), info, warning or error",
    )
    ollama_url: Annotated[str, AfterValidator(_ollama_url)] = Field(f"127.0.0.1:{OLLAMA_PORT}", alias="OLLAMA_HOST", description="where Ollama listens")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings; an empty variable counts as not set. Raises SettingsError with one line."""
        source = os.environ if environment is None else environment
        aliases = {field.alias for field in cls.model_fields.values() if field.alias}
        values = {name: source[name] for name in aliases if source.get(name, "").strip()}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = str(first["loc"][0])
            if name in cls.model_fields:  # a default was checked, which has no variable
                name = str(cls.model_fields[name].alias)
            given = name if name in SECRETS or name not in values else f"{name}={values[name]!r}"
            raise SettingsError(f"{given} can't be used: it {_reason(name, first['msg'])}.") from None

    @classmethod
    def unknown_in(cls, environment: Mapping[str, str] | None = None) -> list[str]:
        """Variables with our prefix that are no settings of this version: a misspelling, or one of another version.

        A person who sets one believes that it works, which matters most where it should protect.
        """
        source = os.environ if environment is None else environment
        aliases = {field.alias for field in cls.model_fields.values()}
        return sorted(name for name in source if name.startswith("CLEANROOM_") and name not in aliases and source[name].strip())


def _reason(name: str, message: str) -> str:
    """What the variable may be: a range where it has one, else pydantic's words or our own."""
    field = next(field for field in Settings.model_fields.values() if field.alias == name)
    limits = {limit: getattr(part, limit) for part in field.metadata for limit in ("ge", "gt", "le") if hasattr(part, limit)}
    if limits:
        low = f"above {limits['gt']}" if "gt" in limits else f"from {limits['ge']}"
        return f"must be a number {low} to {limits['le']}"
    if field.annotation == FilePath | None:
        return "must be the path of a file"
    return message.removeprefix("Value error, ").removeprefix("Input ")
