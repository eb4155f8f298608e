"""Settings: what each variable may hold, and the one line when it holds something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backend.errors import SettingsError
from backend.settings import SECRETS, Settings

ORIGINS = "it must be origins such as https://chat.example.org, separated by commas"
OLLAMA = "it must be a host, host:port or http(s) URL"
SQLITE = "it must be sqlite:/// followed by the path of a file, or postgresql://user:password@host:port/database"


def read(**environment: str) -> Settings:
    return Settings.from_environment(environment)


def test_everything_has_a_default() -> None:
    settings = read()
    assert (settings.host, settings.port, settings.embedded, settings.ttl_messages) == ("127.0.0.1", 8765, "auto", 4)
    assert (settings.history_limit, settings.history_step, settings.working_state_tokens, settings.tool_result_tokens) == (12, 6, 600, 1500)
    assert (settings.max_message_bytes, settings.allowed_origins, settings.ollama_url) == (1_048_576, (), "http://127.0.0.1:11434")
    assert settings.database_url.startswith("sqlite:////") and settings.database_url.endswith("/data/cleanroom.db")


def test_an_empty_variable_counts_as_not_set() -> None:
    assert read(CLEANROOM_PORT="", CLEANROOM_MODEL=" ", OLLAMA_HOST="", CLEANROOM_NUM_CTX="") == read()


def test_variables_of_others_are_not_read() -> None:
    assert read(PORT="1", HOST="elsewhere", CLEANROOM_PROT="2") == read()


def test_the_process_environment_is_the_default_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEANROOM_PORT", "4321")
    assert Settings.from_environment().port == 4321


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("CLEANROOM_PORT", "0", "port", 0),
        ("CLEANROOM_PORT", " 65535 ", "port", 65535),
        ("CLEANROOM_TTL_MESSAGES", "3", "ttl_messages", 3),
        ("CLEANROOM_TTL_MESSAGES", "5", "ttl_messages", 5),
        ("CLEANROOM_HISTORY_LIMIT", "2", "history_limit", 2),
        ("CLEANROOM_WORKING_STATE_TOKENS", "0", "working_state_tokens", 0),
        ("CLEANROOM_TOOL_RESULT_TOKENS", "100", "tool_result_tokens", 100),
        ("CLEANROOM_NUM_CTX", "256", "num_ctx", 256),
        ("CLEANROOM_MAX_MESSAGE_BYTES", "1024", "max_message_bytes", 1024),
        ("CLEANROOM_DATABASE_URL", "sqlite:///beside.db", "database_url", "sqlite:///beside.db"),
        ("CLEANROOM_ALLOWED_ORIGINS", "https://A.example/, http://b:8080 ,", "allowed_origins", ("https://a.example", "http://b:8080")),
        ("CLEANROOM_ALLOWED_ORIGINS", "https://a:443,http://b:80,https://c:80", "allowed_origins", ("https://a", "http://b", "https://c:80")),
        ("CLEANROOM_ALLOWED_ORIGINS", "http://[2001:db8::1]:8765", "allowed_origins", ("http://[2001:db8::1]:8765",)),
        ("OLLAMA_HOST", "gpu", "ollama_url", "http://gpu:11434"),
        ("OLLAMA_HOST", ":5000", "ollama_url", "http://127.0.0.1:5000"),
        ("OLLAMA_HOST", "gpu:5000", "ollama_url", "http://gpu:5000"),
        ("OLLAMA_HOST", "http://gpu", "ollama_url", "http://gpu:80"),
        ("OLLAMA_HOST", "HTTPS://Gpu", "ollama_url", "https://gpu:443"),
        ("OLLAMA_HOST", "https://gpu:9/proxy/", "ollama_url", "https://gpu:9/proxy"),
        ("OLLAMA_HOST", "0.0.0.0", "ollama_url", "http://127.0.0.1:11434"),
        ("OLLAMA_HOST", "http://0.0.0.0:5000", "ollama_url", "http://127.0.0.1:5000"),
        ("OLLAMA_HOST", "::", "ollama_url", "http://[::1]:11434"),
        ("OLLAMA_HOST", "[::]:5000", "ollama_url", "http://[::1]:5000"),
        ("OLLAMA_HOST", "2001:db8::1", "ollama_url", "http://[2001:db8::1]:11434"),
    ],
)
def test_what_a_variable_may_hold(variable: str, value: str, field: str, expected: Any) -> None:
    assert getattr(read(**{variable: value}), field) == expected


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("CLEANROOM_PORT", "abc", "it must be a number from 0 to 65535"),
        ("CLEANROOM_PORT", "65536", "it must be a number from 0 to 65535"),
        ("CLEANROOM_PORT", "-1", "it must be a number from 0 to 65535"),
        ("CLEANROOM_PORT", "80.5", "it must be a number from 0 to 65535"),
        ("CLEANROOM_TTL_MESSAGES", "2", "it must be a number from 3 to 5"),
        ("CLEANROOM_TTL_MESSAGES", "6", "it must be a number from 3 to 5"),
        ("CLEANROOM_HISTORY_LIMIT", "13", "it must be a number from 2 to 12"),
        ("CLEANROOM_HISTORY_STEP", "0", "it must be a number from 1 to 12"),
        ("CLEANROOM_WORKING_STATE_TOKENS", "-1", "it must be a number from 0 to 100000"),
        ("CLEANROOM_TOOL_RESULT_TOKENS", "99", "it must be a number from 100 to 100000"),
        ("CLEANROOM_NUM_CTX", "8k", "it must be a number from 256 to 1048576"),
        ("CLEANROOM_FIRST_TOKEN_SECONDS", "0", "it must be a number above 0 to 86400"),
        ("CLEANROOM_FIRST_TOKEN_SECONDS", "inf", "it must be a number above 0 to 86400"),
        ("CLEANROOM_FIRST_TOKEN_SECONDS", "nan", "it must be a number above 0 to 86400"),
        ("CLEANROOM_MAX_MESSAGE_BYTES", "9" * 40, "it must be a number from 1024 to 16777216"),
        ("CLEANROOM_EMBEDDED", "maybe", "it should be 'auto', 'always' or 'never'"),
        ("CLEANROOM_EMBEDDED_MODEL", "nowhere.gguf", "it must be the path of a file"),
        ("CLEANROOM_DATABASE_URL", "mysql://db", SQLITE),
        ("CLEANROOM_DATABASE_URL", "sqlite:///", SQLITE),
        ("CLEANROOM_DATABASE_URL", "two\nlines", SQLITE),
        ("CLEANROOM_ALLOWED_ORIGINS", "*", ORIGINS),
        ("CLEANROOM_ALLOWED_ORIGINS", "null", ORIGINS),
        ("CLEANROOM_ALLOWED_ORIGINS", "chat.example.org", ORIGINS),
        ("CLEANROOM_ALLOWED_ORIGINS", "https://good.example,file:///x", ORIGINS),
        ("CLEANROOM_ALLOWED_ORIGINS", "https://a/path", ORIGINS),
        ("CLEANROOM_ALLOWED_ORIGINS", "https://a?query", ORIGINS),
        ("CLEANROOM_ALLOWED_ORIGINS", "https://a#part", ORIGINS),
        ("CLEANROOM_ALLOWED_ORIGINS", "https://user@a", ORIGINS),
        ("CLEANROOM_ALLOWED_ORIGINS", "https://a:99999", ORIGINS),
        ("CLEANROOM_ALLOWED_ORIGINS", "https://[::1", ORIGINS),
        ("CLEANROOM_ALLOWED_ORIGINS", "https://чат.рф", ORIGINS),
        ("OLLAMA_HOST", "ftp://gpu", OLLAMA),
        ("OLLAMA_HOST", "gpu:port", OLLAMA),
        ("OLLAMA_HOST", "gpu:99999", OLLAMA),
        ("OLLAMA_HOST", "http://user:word@gpu", OLLAMA),
        ("OLLAMA_HOST", "http://gpu?model=x", OLLAMA),
        ("OLLAMA_HOST", "http://[::1", OLLAMA),
        ("OLLAMA_HOST", "a host", OLLAMA),
    ],
)
def test_a_bad_value_is_refused_in_one_line(variable: str, value: str, reason: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        read(**{variable: value})
    given = variable if variable in SECRETS else f"{variable}={value!r}"
    assert refusal.value.message == f"{given} can't be used: {reason}."
    assert "\n" not in refusal.value.message


@pytest.mark.parametrize("token", ["fifteen letters", "шестнадцать букв"])
def test_a_token_that_can_not_be_used_is_not_repeated(token: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        read(CLEANROOM_ACCESS_TOKEN=token)
    assert refusal.value.message.startswith("CLEANROOM_ACCESS_TOKEN can't be used: it must have at least 16 characters")
    assert token not in refusal.value.message


def test_the_embedded_models_file_is_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "small.gguf"
    file.touch()
    assert read(CLEANROOM_EMBEDDED_MODEL=str(file)).embedded_model == file


def test_a_variable_that_is_no_setting_is_named() -> None:
    environment = {"CLEANROOM_QUEUE_URL": "x", "CLEANROOM_PROT": "1", "CLEANROOM_PORT": "1", "CLEANROOM_NOTHING": " ", "PATH": "/bin"}
    assert Settings.unknown_in(environment) == ["CLEANROOM_PROT", "CLEANROOM_QUEUE_URL"]


def test_an_identity_header_needs_proxies_that_are_believed() -> None:
    with pytest.raises(SettingsError) as refusal:
        read(CLEANROOM_IDENTITY_HEADER="X-Forwarded-User")
    assert "CLEANROOM_TRUSTED_PROXIES can't be used: it must hold the address of the proxy" in str(refusal.value)
    for name, value in (("CLEANROOM_TRUSTED_PROXIES", "10.0.0.1/8"), ("CLEANROOM_TRUSTED_PROXIES", "proxy"), ("CLEANROOM_IDENTITY_HEADER", "X User")):
        with pytest.raises(SettingsError, match=name):
            read(**{name: value})
    settings = read(CLEANROOM_IDENTITY_HEADER="X-Forwarded-User", CLEANROOM_TRUSTED_PROXIES="127.0.0.1, fd00::/8")
    assert [str(network) for network in settings.trusted_proxies] == ["127.0.0.1/32", "fd00::/8"]
