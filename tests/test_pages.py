"""The page's files: all of them, nothing but them, never stale, small on the wire."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from backend import pages
from backend.errors import SettingsError
from tests.raw_http import ask
from tests.server import Client

pytestmark = pytest.mark.anyio

# What the first load may weigh, compressed.
FIRST_LOAD_BYTES = 120_000

# Of the languages' files a page loads one.
CATALOGUES = sorted((pages.FRONTEND / "js" / "i18n").iterdir())


def files_of_the_page() -> list[str]:
    """Every address that index.html loads by itself or through an import."""
    page = (pages.FRONTEND / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:src|href)=\"(/[^\"]*)\"", page))
    found, waiting = {"/"}, list(named)
    while waiting:
        url = waiting.pop()
        if url in found:
            continue
        found.add(url)
        if url.startswith("/js/"):
            source = (pages.FRONTEND / url[1:]).read_text(encoding="utf-8")
            imported = re.findall(r"(?:from|import)\s*\(?\s*\"(\.[^\"]*)\"", source)
            waiting += ["/" + str((pages.FRONTEND / url[1:]).parent.joinpath(path).resolve().relative_to(pages.FRONTEND)) for path in imported]
    return sorted(found)


async def test_everything_the_page_loads_is_there_and_the_whole_is_light(address: str) -> None:
    weights: dict[str, int] = {}
    for url in files_of_the_page():
        answer = await ask(address, url, "Accept-Encoding: gzip")
        assert answer.status == 200, url
        weights[url] = len(answer.body)
    heaviest = sorted(weights, key=lambda url: -weights[url])[:5]
    print(f"first load: {len(weights)} files, {sum(weights.values())} bytes; heaviest: {', '.join(f'{url} {weights[url]}' for url in heaviest)}")
    words = [len((await ask(address, f"/js/i18n/{path.name}", "Accept-Encoding: gzip")).body) for path in CATALOGUES]
    assert sum(weights.values()) + max(words) < FIRST_LOAD_BYTES


def test_every_file_that_the_page_imports_is_named_for_preloading() -> None:
    """A module that is found only when another one has come costs a round trip each."""
    page = (pages.FRONTEND / "index.html").read_text(encoding="utf-8")
    missing = [url for url in files_of_the_page() if url != "/" and f'"{url}"' not in page]
    assert missing == []


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/js/app.js", "text/javascript; charset=utf-8"),
        ("/modules/preact.mjs", "text/javascript; charset=utf-8"),
        ("/modules/diff-base.mjs", "text/javascript; charset=utf-8"),
        ("/css/tokens.css", "text/css; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
        ("/manifest.webmanifest", "application/manifest+json"),
        ("/sw.js", "text/javascript; charset=utf-8"),
        ("/offline/page.html", "text/html; charset=utf-8"),
    ],
)
async def test_a_file_is_asked_for_again_only_when_it_changed(address: str, url: str, kind: str) -> None:
    first = await ask(address, url)
    assert (first.status, first.headers["content-type"], first.headers["cache-control"]) == (200, kind, "no-cache")
    etag = first.headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        for encoding in ("identity", "gzip"):
            again = await ask(address, url, f"If-None-Match: {known}", f"Accept-Encoding: {encoding}")
            assert (again.status, again.body, again.headers["etag"], again.headers["cache-control"]) == (304, b"", etag, "no-cache")
    assert (await ask(address, url, 'If-None-Match: "other"')).body == first.body
    assert (await ask(address, url, method="HEAD")).status == 200


@pytest.mark.parametrize("url", ["/", "/js/app.js", "/modules/preact.mjs", "/css/layout.css"])
async def test_files_are_compressed_for_who_asks(address: str, url: str) -> None:
    plain, small = await ask(address, url), await ask(address, url, "Accept-Encoding: gzip")
    assert "content-encoding" not in plain.headers
    assert (small.headers["content-encoding"], small.headers["vary"].lower()) == ("gzip", "accept-encoding")
    assert gzip.decompress(small.body) == plain.body
    assert len(small.body) < len(plain.body)


async def test_a_changed_file_is_seen_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pages.import_map().strip().startswith("{")
    (tmp_path / "index.html").write_text('<script type="importmap">{"imports": {"a": "/b"}}</script>', encoding="utf-8")
    monkeypatch.setattr(pages, "FRONTEND", tmp_path)
    assert pages.import_map() == '{"imports": {"a": "/b"}}'
    (tmp_path / "index.html").write_text("<script>", encoding="utf-8")
    with pytest.raises(SettingsError, match="import map"):
        pages.import_map()


def test_missing_browser_modules_stop_the_start_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "NODE_MODULES", tmp_path)
    with pytest.raises(SettingsError, match=r"preact\.mjs is not installed; run scripts/setup"):
        pages.routes()


async def test_the_page_is_told_which_languages_there_are(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await ask(address, "/")
    assert f'data-languages="{" ".join(path.stem for path in CATALOGUES)}"'.encode() in before.body
    copy = tmp_path / "frontend"
    shutil.copytree(pages.FRONTEND, copy)
    (copy / "js" / "i18n" / "xx.js").write_text("export default {};", encoding="utf-8")
    monkeypatch.setattr(pages, "FRONTEND", copy)
    after = await ask(address, "/", f"If-None-Match: {before.headers['etag']}")
    assert after.status == 200, "a page that a browser keeps must not hide a new language"
    assert b' xx"' in after.body


TRICKS = [
    "../backend/settings.py",
    "..%2fbackend%2fsettings.py",
    "%2e%2e/backend/settings.py",
    "%2e%2e%2fbackend%2fsettings.py",
    "..%252f..%252fbackend/settings.py",
    "....//backend/settings.py",
    "..\\backend\\settings.py",
    "..%5cbackend%5csettings.py",
    "..%c0%afbackend/settings.py",
    "/etc/passwd",
    "//etc/passwd",
    "%2fetc%2fpasswd",
    "app.js%00.html",
    "app.js.",
    "app.js%20",
    "APP.JS",
    "app.js~",
    ".git/config",
    "x" * 5000,
    "",
    ".",
    "..",
    "../",
    "../js",
    "../index.html",
    "../../pyproject.toml",
    "../../data/cleanroom.db",
]


@pytest.mark.parametrize("trick", TRICKS)
async def test_no_path_leads_out_of_the_pages_files(address: str, trick: str) -> None:
    """N04: nothing but a listed file, and no listing of a folder."""
    for base in ("/js/", "/css/", "/modules/", "/"):
        answer = await ask(address, base + trick)
        if base == "/" and trick in ("", "."):
            continue  # the page itself
        assert answer.status in (404, 400), base + trick
        assert b"import" not in answer.content
        assert b"root:" not in answer.content


@pytest.mark.parametrize(
    "url", ["/js", "/js/", "/js/views", "/js/views/", "/css/", "/modules", "/modules/", "/frontend/index.html", "/index.html", "/modules.json"]
)
async def test_folders_and_other_files_are_not_shown(address: str, url: str) -> None:
    answer = await ask(address, url)
    if answer.status == 307:  # to the same address with a slash at its end
        answer = await ask(address, answer.headers["location"].removeprefix(f"http://{address}"))
    assert answer.status == 404


@pytest.mark.parametrize("name", ["preact/package.json", "preact/dist/preact.mjs", "marked.esm.js", "Preact.mjs"])
async def test_of_the_installed_packages_only_the_listed_files_are_served(address: str, name: str) -> None:
    assert (await ask(address, f"/modules/{name}")).status == 404


async def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.js").write_text("secret", encoding="utf-8")
    folder = tmp_path / "js"
    folder.mkdir()
    (folder / "link.js").symlink_to(tmp_path / "secret.js")
    found, _ = pages._Folder(directory=folder).lookup_path("link.js")
    assert found == ""


async def test_health_and_readiness(address: str) -> None:
    assert ((await ask(address, "/healthz")).status, (await ask(address, "/healthz")).body) == (200, b"ok\n")
    async with Client.connect(address):  # greeted after the first look at the model servers
        ready = await ask(address, "/readyz")
    assert (ready.status, json.loads(ready.body)) == (200, {"database": "ok", "model_backend": "ollama"})
