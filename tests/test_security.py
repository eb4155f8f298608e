"""Who may speak to the server, over raw sockets: hosts, origins and what every answer carries."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Scope

from backend import security
from backend.security import Guard, content_security_policy
from tests.fake_ollama import FakeOllama
from tests.raw_http import Answer, ask, shake_hands
from tests.server import Client, make_settings, running

pytestmark = pytest.mark.anyio

INDEX = Path(security.__file__).parent.parent / "frontend" / "index.html"

POLICY = (
    "default-src 'self'; script-src 'self' 'sha256-{digest}'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


def port_of(address: str) -> str:
    return address.rpartition(":")[2]


# --- Host


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:{port}", "localhost:{port}", "LocalHost:{port}", "[::1]:{port}", "[0:0:0:0:0:0:0:1]", "127.0.0.1", "127.1.2.3:80", "localhost:"],
)
async def test_names_of_this_machine_are_answered(address: str, host: str) -> None:
    named = host.format(port=port_of(address))
    assert (await ask(address, "/healthz", host=named)).status == 200
    assert (await shake_hands(address, host=named)).status == 101


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "localhost.evil.example:{port}",
        "localhost.:{port}",
        "127.0.0.1.:{port}",
        "127.0.0.1.nip.example:{port}",
        "0.0.0.0:{port}",
        "[::]:{port}",
        "[::ffff:192.0.2.1]:{port}",
        "::1",
        "192.0.2.7:{port}",
        "169.254.169.254",
        "2130706433:{port}",
        "0x7f000001",
        "127.1",
        "localhost:{port}@evil.example",
        "evil.example#localhost",
        "evil.example/localhost",
        "localhost/",
        "localhost:port",
        "localhost, evil.example",
        "localhost evil.example",
        "[::1",
        "[::1].evil.example",
        "ünïcode.example",
        "\xaalocalhost",
    ],
)
async def test_other_names_are_refused(address: str, host: str) -> None:
    """N02: a name that an attacker points at this machine (DNS rebinding) is never answered."""
    named = host.format(port=port_of(address))
    for answer in (await ask(address, "/healthz", host=named), await shake_hands(address, host=named)):
        assert answer.status in (400, 403), host
        assert b"ok" not in answer.body
    pair = await shake_hands(address, f"Origin: http://{named}", host=named)
    assert pair.status in (400, 403)


async def test_a_request_needs_one_host_and_only_one(address: str) -> None:
    for lines in (["Host: 127.0.0.1"], ["Host: evil.example"]):
        assert (await ask(address, "/healthz", *lines)).status in (400, 403)
        assert (await ask(address, "/healthz", "Host: 127.0.0.1", host="evil.example")).status in (400, 403)
        assert (await shake_hands(address, *lines)).status in (400, 403)
    assert (await ask(address, "/healthz", host=None)).status in (400, 403)


async def test_a_whole_url_in_the_request_line_changes_nothing(address: str) -> None:
    assert (await ask(address, f"http://{address}/healthz")).status == 200
    assert (await ask(address, "http://127.0.0.1/healthz", host="evil.example")).status == 403
    assert (await shake_hands(address, target=f"http://{address}/ws", host="evil.example")).status == 403


async def test_configured_hosts_are_answered(tmp_path: Path, fake: FakeOllama) -> None:
    config = make_settings(tmp_path, fake, allowed_origins=("https://chat.example.org",), access_token="off")
    async with running(config) as address:
        assert (await ask(address, "/healthz", host="chat.example.org")).status == 200
        assert (await ask(address, "/healthz", host="Chat.Example.Org:443")).status == 200
        assert (await ask(address, "/healthz", host="example.org")).status == 403
        assert (await shake_hands(address, "Origin: https://chat.example.org", host="chat.example.org")).status == 101
        assert (await shake_hands(address, "Origin: https://chat.example.org")).status == 101
        assert (await shake_hands(address, host="chat.example.org")).status == 403  # a script, not on this machine
        assert (await shake_hands(address, "Origin: https://chat.example.org:444")).status == 403
        assert (await shake_hands(address, "Origin: http://chat.example.org")).status == 403


@pytest.mark.parametrize(
    ("bound", "host", "status"),
    [
        ("0.0.0.0", "127.0.0.1:8765", 200),
        ("0.0.0.0", "192.168.1.5:8765", 403),
        ("0.0.0.0", "0.0.0.0:8765", 403),
        ("::", "[::1]:8765", 200),
        ("::", "[::]:8765", 403),
        ("::", "[2001:db8::5]:8765", 403),
        ("192.168.1.5", "192.168.1.5:8765", 200),
        ("192.168.1.5", "192.168.1.6:8765", 403),
        ("Box.Local", "box.local:8765", 200),
        ("2001:db8::5", "[2001:db8::5]:8765", 200),
    ],
)
async def test_what_a_server_bound_elsewhere_answers(bound: str, host: str, status: int) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope: Scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", host.encode())]}
    guard = Guard(PlainTextResponse("ok"), bound_host=bound, allowed_origins=(), policy="default-src 'self'")
    await guard(scope, receive, send)
    assert sent[0]["status"] == status


# --- Origin


@pytest.mark.parametrize("origin", ["http://{address}", "HTTP://{address}", "https://{address}"])
async def test_the_pages_own_origin_may_connect(address: str, origin: str) -> None:
    line = f"Origin: {origin.format(address=address)}"
    assert (await shake_hands(address, line)).status == 101
    assert (await ask(address, "/", line)).status == 200


async def test_a_script_of_this_machine_may_connect_without_an_origin(address: str) -> None:
    assert (await shake_hands(address)).status == 101


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://localhost.evil.example:{port}",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost:{port}",  # the page was asked for under another name
        "http://127.0.0.1:{port}.evil.example",
        "http://user@127.0.0.1:{port}",
        "http://127.0.0.1:{port}/",
        "ftp://127.0.0.1:{port}",
        "file://",
        "http://[::1]:{port}",
        "chrome-extension://abcdef",
        "http://127.0.0.1:{port}, http://evil.example",
    ],
)
async def test_pages_of_other_origins_may_not(address: str, origin: str) -> None:
    """N01, and N03 for plain requests: refused before anything is accepted."""
    line = f"Origin: {origin.format(port=port_of(address))}"
    assert (await shake_hands(address, line)).status == 403
    assert (await ask(address, "/", line)).status == 403


async def test_two_origins_are_none(address: str) -> None:
    lines = (f"Origin: http://{address}", "Origin: http://evil.example")
    for order in (lines, lines[::-1]):
        assert (await shake_hands(address, *order)).status in (400, 403)
        assert (await ask(address, "/", *order)).status == 403


async def test_nothing_but_reading_is_possible_over_http(address: str) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        for path in ("/", "/healthz", "/readyz", "/js/app.js", "/modules/preact.mjs", "/ws"):
            assert (await ask(address, path, "Content-Length: 0", method=method)).status in (404, 405)


# --- what every answer carries


def import_map_digest() -> str:
    """What a browser computes: of the text between the tags, with line ends as LF."""
    page = INDEX.read_bytes().decode().replace("\r\n", "\n")
    (text,) = re.findall(r"<script type=\"importmap\">(.*?)</script>", page, re.DOTALL)
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


async def answers_of_every_kind(address: str) -> Iterable[tuple[str, Answer]]:
    etag = (await ask(address, "/")).headers["etag"]
    return [
        ("page", await ask(address)),
        ("page, compressed", await ask(address, "/", "Accept-Encoding: gzip")),
        ("page, unchanged", await ask(address, "/", f"If-None-Match: {etag}")),
        ("head", await ask(address, "/", method="HEAD")),
        ("script", await ask(address, "/js/app.js")),
        ("style", await ask(address, "/css/tokens.css")),
        ("module", await ask(address, "/modules/preact.mjs")),
        ("icon", await ask(address, "/icon.svg")),
        ("health", await ask(address, "/healthz")),
        ("readiness", await ask(address, "/readyz")),
        ("404", await ask(address, "/nowhere")),
        ("404 of a folder", await ask(address, "/js/nowhere.js")),
        ("405", await ask(address, "/", method="POST")),
        ("416", await ask(address, "/", "Range: bytes=99999999-")),
        ("403 by host", await ask(address, host="evil.example")),
        ("403 by origin", await ask(address, "/", "Origin: null")),
        ("403 of a handshake", await shake_hands(address, "Origin: null")),
    ]


async def test_every_answer_carries_the_policy(address: str) -> None:
    """X07: the golden header, with the one inline script named by its hash."""
    for name, answer in await answers_of_every_kind(address):
        assert answer.headers["content-security-policy"] == POLICY.format(digest=import_map_digest()), name
        assert answer.headers["x-content-type-options"] == "nosniff", name
        assert answer.headers["referrer-policy"] == "same-origin", name
        assert answer.headers["cross-origin-opener-policy"] == "same-origin", name
        assert answer.headers["cross-origin-resource-policy"] == "same-origin", name
        assert "permissions-policy" in answer.headers, name
        assert not {"access-control-allow-origin", "set-cookie"} & answer.headers.keys(), name


def test_the_policy_follows_the_script() -> None:
    assert content_security_policy("{}") != content_security_policy("{ }")


def test_the_page_has_no_other_inline_script_and_loads_nothing_from_elsewhere() -> None:
    page = INDEX.read_text(encoding="utf-8")
    inline = [text for attributes, text in re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL) if text.strip() and "importmap" not in attributes]
    assert inline == []
    assert not re.search(r"\son\w+=|<style|\sstyle=|javascript:", page)
    assert all(url.startswith("/") and not url.startswith("//") for url in re.findall(r"(?:src|href)=\"([^\"]*)\"", page))


# --- what goes on to others, or is opened for a client


async def test_nothing_of_the_browser_goes_on_to_the_model_server(tmp_path: Path, fake: FakeOllama) -> None:
    """N07."""
    token = "canary-token-of-24-letters"
    async with running(make_settings(tmp_path, fake, access_token=token)) as address:
        browser = {
            "Authorization": f"Bearer {token}",
            "Cookie": "session=canary-cookie",
            "Origin": f"http://{address}",
            "Referer": f"http://{address}/canary",
            "User-Agent": "canary-browser",
            "X-Forwarded-For": "canary",
        }
        # The handshake's own headers can't be given twice.
        async with Client.connect(address, additional_headers=browser, user_agent_header=None) as client:
            await client.say(await client.new_chat(), "hi")
    (request,) = fake.requests
    assert not {"authorization", "cookie", "origin", "referer", "x-forwarded-for"} & request.headers.keys()
    assert "canary" not in f"{request.headers} {request.raw!r}"


async def test_what_a_command_names_is_neither_opened_nor_fetched(tmp_path: Path, fake: FakeOllama) -> None:
    """N05: paths and addresses are text, wherever a client puts them."""
    secret = tmp_path / "secret.txt"
    secret.write_text("canary of the file", encoding="utf-8")
    fetched: list[bytes] = []

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fetched.append(await reader.readline())
        writer.close()

    elsewhere = await asyncio.start_server(record, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{elsewhere.sockets[0].getsockname()[1]}/x.png"
    named: dict[str, object] = {name: value for name in ("path", "file", "url", "image_url", "src") for value in (str(secret),)}
    named |= {"images": [str(secret), url], "attachments": [{"path": str(secret), "url": url}], "elements": [{"url": f"file://{secret}"}]}
    text = f"![x]({url}) ![y](file://{secret}) {secret}"
    archive = {"title": "t", "mapping": {}, "messages": [{"role": "user", "content": text, **named}], "files": [{"url": url, "path": str(secret)}], **named}
    folder = tmp_path / "data"
    async with elsewhere, running(make_settings(folder, fake)) as address, Client.connect(address) as client:
        chat = await client.new_chat(**named)
        sent = await client.ok("message.send", chat_id=chat, client_id="1", text=text, **named)
        await client.finished(sent["turn_id"])
        for title in (url, str(secret)):
            await client.press(chat, "note_save", title=title[-100:], content=text)
        await client.command("tool.invoke", chat_id=chat, client_id="2", tool="note_save", arguments={"title": "x", "content": "y", **named})
        await client.command("chat.import", content=json.dumps(archive), **named)
        assert "canary" not in json.dumps([await client.messages(chat), client.events])
    assert fetched == []
    assert not any("images" in message for message in fake.requests[0].messages)
    assert not any(b"canary" in file.read_bytes() for file in folder.iterdir())
