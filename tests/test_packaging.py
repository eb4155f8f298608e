"""What is installed is pinned, told where it is chosen, and named without an address."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from backend.settings import PROJECT_FOLDER, Settings
from tests.engines import free_port
from tests.raw_http import ask

pytestmark = pytest.mark.anyio

PROJECT = Path(__file__).resolve().parent.parent
PINNED = sorted(path.name for path in PROJECT.glob("requirements*.txt") if path.with_suffix(".in").exists())
CHOSEN = sorted(path.name for path in PROJECT.glob("requirements*.in"))
NAME = re.compile(r"[A-Za-z0-9._-]+")

needs_haproxy = pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")


def requirements(file: str) -> list[str]:
    """The file's requirements, each with its options on one line."""
    text = (PROJECT / file).read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith(("#", "-c"))]


def name_of(requirement: str) -> str:
    found = NAME.match(requirement)
    assert found, requirement
    return found.group().lower()


def rendered(default: Any) -> str:
    """A setting's default as the README shows it, in backticks; nothing for an empty one."""
    if default is None or default == ():
        return ""
    return f"`{str(default).replace(f'{PROJECT_FOLDER}/', '')}`"


def test_all_requirement_files_are_seen() -> None:
    assert PINNED == ["requirements-dev.txt", "requirements-node.txt", "requirements.txt"]


@pytest.mark.parametrize("file", PINNED)
def test_every_requirement_is_pinned_with_hashes_and_no_address(file: str) -> None:
    lines = requirements(file)
    assert lines
    loose = [line[:60] for line in lines if not re.match(r"[\w.-]+==[^\s;]+( ; [^-]+?)? +--hash=sha256:[0-9a-f]{64}", line)]
    assert loose == []
    assert "://" not in (PROJECT / file).read_text()


@pytest.mark.parametrize("file", CHOSEN)
def test_every_choice_is_among_the_pinned(file: str) -> None:
    pinned = {name_of(line) for line in requirements(file.replace(".in", ".txt"))}
    assert {name_of(line) for line in requirements(file)} <= pinned


def test_developers_and_users_have_the_same_versions() -> None:
    pins = [{name_of(line): line.split()[0] for line in requirements(file)} for file in PINNED]
    for name in set(pins[0]) & set(pins[2]):
        assert pins[0][name] == pins[2][name]


def test_every_choice_has_its_reason() -> None:
    decisions = (PROJECT / "docs" / "decisions.md").read_text().lower()
    page = json.loads((PROJECT / "package.json").read_text())
    chosen = [name_of(line) for file in CHOSEN for line in requirements(file)]
    chosen += [*page["dependencies"], *page["devDependencies"]]
    assert [name for name in chosen if name.lower() not in decisions] == []


def test_browser_modules_are_pinned_without_an_address() -> None:
    lock = json.loads((PROJECT / "package-lock.json").read_text())
    page = json.loads((PROJECT / "package.json").read_text())
    installed = {path: package for path, package in lock["packages"].items() if path}
    assert [path for path, package in installed.items() if "resolved" in package or "integrity" not in package] == []
    for name, version in {**page["dependencies"], **page["devDependencies"]}.items():
        assert installed[f"node_modules/{name}"]["version"] == version


def test_the_readme_shows_every_setting() -> None:
    expected = [f"| `{field.alias}` | {rendered(field.default)} | {field.description} |" for field in Settings.model_fields.values()]
    lines = (PROJECT / "README.md").read_text().splitlines()
    shown = [line.strip() for line in lines if line.startswith(("| `CLEANROOM_", "| `OLLAMA_"))]
    assert shown == expected, "the table should be:\n" + "\n".join(expected)


@pytest.mark.parametrize("file", ["docker-compose.yml", "docker-compose.scale.yml"])
def test_containers_get_known_settings_alone(file: str) -> None:
    known = {field.alias for field in Settings.model_fields.values()}
    named = set(re.findall(r"^ +(CLEANROOM_\w+):", (PROJECT / file).read_text(), re.MULTILINE))
    assert named
    assert named - known == set()


def test_no_password_is_given_for_replicas() -> None:
    text = (PROJECT / "docker-compose.scale.yml").read_text()
    secrets = re.findall(r"\$\{(\w*(?:PASSWORD|TOKEN))(..)", text)
    assert {name for name, _ in secrets} == {"POSTGRES_PASSWORD", "CLEANROOM_ACCESS_TOKEN"}
    assert {mark for _, mark in secrets} == {":?"}


def test_only_the_balancer_has_a_port_and_on_this_machine_alone() -> None:
    text = (PROJECT / "docker-compose.scale.yml").read_text()
    assert re.findall(r"^ +ports:\n +- (.+)$", text, re.MULTILINE) == ["127.0.0.1:${CLEANROOM_PORT:-8765}:8765"]


def test_nobody_is_named_by_a_header_until_a_proxy_is() -> None:
    page = (PROJECT / "docs/haproxy.cfg").read_text().partition("frontend page\n  ")[2].partition("\n\n")[0].split("\n  ")
    assert 'http-request del-header "${CLEANROOM_IDENTITY_HEADER}" unless { src "${AUTH_PROXY_ADDRESS}" }' in page
    text = (PROJECT / "docker-compose.scale.yml").read_text()
    assert re.findall(r"\$\{(CLEANROOM_IDENTITY_HEADER|AUTH_PROXY_ADDRESS):-(.*)\}", text) == [
        ("CLEANROOM_IDENTITY_HEADER", ""),
        ("CLEANROOM_IDENTITY_HEADER", "X-Forwarded-User"),
        ("AUTH_PROXY_ADDRESS", "0.0.0.0"),
    ]


@asynccontextmanager
async def replica(name: bytes) -> AsyncIterator[asyncio.Server]:
    """What repeats a request's head, after its own name."""

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = name + await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    async with await asyncio.start_server(repeat, "127.0.0.1") as server:
        yield server


@asynccontextmanager
async def haproxy(folder: Path, *replicas: asyncio.Server, **variables: str) -> AsyncIterator[str]:
    """HAProxy before replicas that run here; its address."""
    port, text = free_port(), (PROJECT / "docs/haproxy.cfg").read_text().partition("frontend models")[0]
    for number, server in enumerate(replicas, 1):
        text = text.replace(f"replica-{number}:8765", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    (folder / "haproxy.cfg").write_text(text.replace("bind :8765", f"bind 127.0.0.1:{port}"))
    process = await asyncio.create_subprocess_exec(
        "haproxy", "-f", folder / "haproxy.cfg", env={**os.environ, **variables}, stdout=DEVNULL, stderr=DEVNULL
    )  # fmt: skip
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


@needs_haproxy
@pytest.mark.parametrize(("auth_proxy", "is_named"), [("", False), ("127.0.0.2", False), ("127.0.0.1", True), ("127.0.0.0/8", True)])
async def test_haproxy_passes_a_name_on_from_the_auth_proxy_alone(tmp_path: Path, auth_proxy: str, is_named: bool) -> None:
    lines = ("X-Forwarded-User: ann", "x-forwarded-user: ben", "X-Forwarded-For: 203.0.113.9")
    named = {"AUTH_PROXY_ADDRESS": auth_proxy} if auth_proxy else {}
    async with replica(b"one") as one, haproxy(tmp_path, one, **named) as address:
        for path in ("/", "/ws"):
            seen = (await asked_when_there(address, path, *lines)).lower()
            assert (b"ann" in seen, b"ben" in seen) == (is_named, is_named)
            assert re.findall(rb"x-forwarded-for: (.*)\r", seen) == [b"127.0.0.1"]


@needs_haproxy
async def test_haproxy_takes_a_pages_files_from_one_replica_and_from_the_next_when_that_is_gone(tmp_path: Path) -> None:
    """While two versions serve, a page that is made of both would not start."""
    async with replica(b"one") as one, replica(b"two") as two, haproxy(tmp_path, one, two) as address:

        async def who(path: str) -> set[bytes]:
            return {(await asked_when_there(address, path))[:3] for _ in range(4)}

        assert (await who("/js/app.js"), await who("/ws")) == ({b"one"}, {b"one", b"two"})
        one.close()
        assert (await who("/js/app.js"), await who("/ws")) == ({b"two"}, {b"two"})


async def asked_when_there(address: str, path: str, *lines: str) -> bytes:
    """What is answered at an address, as soon as somebody listens there."""
    async with asyncio.timeout(20):
        while True:
            try:
                return (await ask(address, path, *lines)).body
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)


@needs_haproxy
def test_haproxy_takes_the_configuration() -> None:
    checked = subprocess.run(["haproxy", "-c", "-f", PROJECT / "docs/haproxy.cfg"], capture_output=True, text=True, timeout=20)
    assert checked.returncode == 0, checked.stderr
