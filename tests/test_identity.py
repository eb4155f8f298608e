"""Who asks, over raw HTTP: the name that a trusted proxy gives, and nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from backend.identity import NAME_CHARACTERS, Identity
from backend.settings import Network
from tests.fake_ollama import FakeOllama
from tests.raw_http import ask, shake_hands
from tests.server import Client, make_settings, running

pytestmark = pytest.mark.anyio

HEADER = "X-Forwarded-User"


@pytest.fixture
async def address(tmp_path: Path, fake: FakeOllama) -> AsyncIterator[str]:
    async with running(make_settings(tmp_path, fake, identity_header=HEADER, trusted_proxies="127.0.0.1")) as where:
        yield where


async def test_the_named_user_is_welcomed_and_the_page_knows_who_that_is(address: str) -> None:
    async with Client.connect(address, additional_headers={HEADER: "ann"}) as client:
        assert client.welcome["settings"]["user"] == "ann"
    page = await ask(address, "/", f'{HEADER}: "<ann>"')
    assert b'data-user="&quot;&lt;ann&gt;&quot;"' in page.content
    assert page.headers["etag"] != (await ask(address, "/", f"{HEADER}: ben")).headers["etag"]


UNUSABLE: list[tuple[str, ...]] = [
    (),
    (f"{HEADER}:",),
    (f"{HEADER}:   ",),
    (f"{HEADER}: ann", f"{HEADER}: ann"),
    (f"{HEADER}: ann", f"{HEADER.lower()}: ben"),
    (f"{HEADER}: {'a' * (NAME_CHARACTERS + 1)}",),
    (f"{HEADER}: an\tn",),
    (f"{HEADER}: an\x85n",),
    (f"{HEADER}: \xff\xfe",),
    (f"{HEADER}: an\xe2\x80\xaen",),  # turns the writing's direction
    ("X_Forwarded_User: ann",),
]


async def test_a_request_without_one_usable_name_is_refused(address: str) -> None:
    for lines in UNUSABLE:
        for answer in (await ask(address, "/", *lines), await shake_hands(address, *lines)):
            assert answer.status == 401, lines
            assert HEADER in answer.content.decode()


async def test_a_name_may_be_in_any_script(address: str) -> None:
    async with Client.connect(address, additional_headers=[(HEADER, "Анна".encode().decode("latin-1"))]) as client:
        assert client.welcome["settings"]["user"] == "Анна"


async def test_who_is_no_trusted_proxy_is_refused_whatever_it_says(tmp_path: Path) -> None:
    async with running(make_settings(tmp_path, identity_header=HEADER, trusted_proxies="10.0.0.0/8,192.0.2.1")) as address:
        for lines in ((), (f"{HEADER}: ann",), (f"{HEADER}: ann", "X-Forwarded-For: 10.0.0.1", "Forwarded: for=10.0.0.1", "X-Real-IP: 10.0.0.1")):
            for answer in (await ask(address, "/", *lines), await shake_hands(address, *lines)):
                assert answer.status == 403
                assert b"CLEANROOM_TRUSTED_PROXIES" in answer.content


async def test_what_the_proxy_says_of_the_way_changes_nothing_about_who_it_is(address: str) -> None:
    assert (await ask(address, "/js/app.js", f"{HEADER}: ann", "X-Forwarded-For: 203.0.113.9")).status == 403  # by the access token's rule: none is set
    assert (await ask(address, "/js/app.js", f"{HEADER}: ann", "X-Forwarded-For: 127.0.0.1")).status == 200


async def test_what_watches_over_the_process_needs_no_name(address: str) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await ask(address, path)).status == 200, path


async def test_the_access_token_is_asked_for_as_well(tmp_path: Path) -> None:
    token = "a token with 24 letters."
    async with running(make_settings(tmp_path, identity_header=HEADER, trusted_proxies="127.0.0.1", access_token=token)) as address:
        assert (await ask(address, "/js/app.js", f"{HEADER}: ann")).status == 401
        assert (await ask(address, "/js/app.js", f"Authorization: Bearer {token}")).status == 401
        assert (await ask(address, "/js/app.js", f"{HEADER}: ann", f"Authorization: Bearer {token}")).status == 200


async def test_without_the_setting_a_header_names_nobody(tmp_path: Path) -> None:
    async with running(make_settings(tmp_path)) as address, Client.connect(address, additional_headers={HEADER: "ann"}) as client:
        assert client.welcome["settings"]["user"] is None
        assert b'data-user=""' in (await ask(address, "/", f"{HEADER}: ann")).content


@pytest.mark.parametrize(
    ("peer", "is_trusted"),
    [("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("fd00::1", True), ("11.0.0.1", False), ("::ffff:11.0.0.1", False), ("fe80::1%eth0", False), (None, False)],
)
async def test_a_peer_is_known_by_its_network_in_either_notation(peer: str | None, is_trusted: bool) -> None:
    asked: list[str] = []
    status: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["user"])

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        status.append(message.get("status", 0))

    networks: list[Network] = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]
    scope = {"type": "http", "path": "/", "headers": [(HEADER.lower().encode(), b"ann")], "client": (peer, 1) if peer else None}
    await Identity(app, header=HEADER, proxies=networks)(scope, receive, send)
    assert (asked, status[:1]) == ((["ann"], []) if is_trusted else ([], [403]))
