"""The page's files: frontend/ as it is, and from node_modules an explicit list, never the folder."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Awaitable, Callable
from os import PathLike, stat_result
from pathlib import Path

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

from backend.errors import SettingsError
from backend.settings import PROJECT_FOLDER

FRONTEND = PROJECT_FOLDER / "frontend"
NODE_MODULES = PROJECT_FOLDER / "node_modules"

# A changed file is seen at once, an unchanged one costs a request that its ETag answers.
NO_CACHE = {"cache-control": "no-cache"}
# Smaller files gain nothing from compression.
GZIP_BYTES = 500
# Systems differ in what they call these; browsers refuse a module of another type.
KINDS = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml", ".webmanifest": "application/manifest+json"}

_IMPORT_MAP_OPENING = '<script type="importmap">'
_NO_LANGUAGES = 'data-languages=""'
_NO_USER = 'data-user=""'


def import_map() -> str:
    """The text of index.html's one inline script, which the page's policy names by its hash."""
    page = (FRONTEND / "index.html").read_text(encoding="utf-8")
    _, opening, rest = page.partition(_IMPORT_MAP_OPENING)
    text, closing, _ = rest.partition("</script>")
    if not opening or not closing:
        raise SettingsError("frontend/index.html has no import map; restore the file.")
    return text


def routes() -> list[BaseRoute]:
    """The routes of the page. Raises SettingsError when the browser's modules aren't installed."""
    single_files = [path for path in sorted(FRONTEND.iterdir()) if path.is_file() and path.suffix in KINDS]
    return [
        _page(),
        *(_file(f"/{path.name}", path) for path in single_files),
        *(_file(f"/modules/{name}", path) for name, path in _modules().items()),
        *(Mount(f"/{name}", GZipMiddleware(_Folder(directory=FRONTEND / name), GZIP_BYTES)) for name in ("css", "js", "offline")),
    ]


def _modules() -> dict[str, Path]:
    names = json.loads((FRONTEND / "modules.json").read_text(encoding="utf-8"))
    files = {name: NODE_MODULES / path for name, path in names.items()}
    missing = [name for name, path in files.items() if not path.is_file()]
    if missing:
        raise SettingsError(f"The browser module {missing[0]} is not installed; run scripts/setup.")
    return files


class _Folder(StaticFiles):
    """Files of one folder; those that the browser has already are answered by 304."""

    def file_response(self, full_path: str | PathLike[str], stat_result: stat_result, scope: Scope, status_code: int = 200) -> Response:
        kind = KINDS.get(Path(full_path).suffix)
        return self.unless_known(FileResponse(full_path, status_code, NO_CACHE, media_type=kind, stat_result=stat_result), scope)

    def unless_known(self, response: Response, scope: Scope) -> Response:
        unchanged = self.is_not_modified(response.headers, Headers(scope=scope))
        return NotModifiedResponse(response.headers) if unchanged else response


def _file(url: str, path: Path) -> Route:
    folder = _Folder(directory=path.parent)

    async def serve(request: Request) -> Response:
        return await folder.get_response(path.name, request.scope)

    return _compressed(url, serve)


def _page() -> Route:
    """index.html, told which languages there are, one for each file of js/i18n, and who asks for it."""
    folder = _Folder(directory=FRONTEND)

    def serve(request: Request) -> Response:
        languages = sorted(path.stem for path in (FRONTEND / "js" / "i18n").glob("*.js"))
        page = (FRONTEND / "index.html").read_text(encoding="utf-8").replace(_NO_LANGUAGES, f'data-languages="{" ".join(languages)}"')
        page = page.replace(_NO_USER, f'data-user="{html.escape(request.scope["user"])}"', 1)
        etag = f'"{hashlib.sha256(page.encode()).hexdigest()}"'
        return folder.unless_known(HTMLResponse(page, headers=NO_CACHE | {"etag": etag}), request.scope)

    return _compressed("/", serve)


def _compressed(url: str, serve: Callable[[Request], Response | Awaitable[Response]]) -> Route:
    route = Route(url, serve)
    route.app = GZipMiddleware(route.app, GZIP_BYTES)
    return route
