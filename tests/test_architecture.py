"""The layers of the design, held by reading every module's imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent

# From top to bottom: a module imports from its own entry and from those below it.
LAYERS: list[str] = [
    "backend.__main__",
    "backend.copies",
    "backend.moving",
    "backend.app",
    "backend.commands",
    "backend.replicas",
    "backend.connection",
    "backend.frame_socket",
    "backend.rate_limit",
    "backend.pages",
    "backend.access",
    "backend.identity",
    "backend.security",
    "backend.readiness",
    "backend.metrics",
    "backend.services",
    "backend.llm",
    "backend.hub",
    "backend.event_log",
    "backend.protocol",
    "backend.embedded",
    "backend.store",
    "backend.settings",
    "backend.logs",
    "backend.errors",
    "backend.text",
]

# What the order of the layers would allow and the design does not.
FORBIDDEN: dict[str, list[str]] = {
    "backend.connection": ["backend.services", "backend.llm", "backend.store"],
    "backend.pages": ["backend.services", "backend.llm", "backend.store"],
    "backend.access": ["backend.services", "backend.llm", "backend.store"],
    "backend.identity": ["backend.services", "backend.llm", "backend.store"],
    "backend.security": ["backend.services", "backend.llm", "backend.store"],
    "backend.replicas": ["backend.store", "backend.llm", "backend.settings"],
    "backend.hub": ["backend.store", "backend.llm", "backend.services", "backend.embedded"],
    "backend.protocol": ["backend.store", "backend.llm", "backend.embedded", "backend.settings"],
    "backend.llm": ["backend.hub", "backend.protocol", "backend.services"],
    "backend.llm.agent": ["backend.store", "backend.embedded", "backend.settings", "re"],
    "backend.llm.model": ["backend.store", "backend.embedded", "backend.settings"],
    "backend.llm.core.tool_injector": ["backend.store", "re"],
    "backend.llm.tools": ["backend.llm.agent", "backend.llm.model", "backend.llm.backend"],
    "backend.embedded": ["backend.store", "backend.settings"],
    "backend.store": ["backend.settings"],
}

# Pure modules: all that they may import. No socket, no file, no SQL, no clock.
ONLY: dict[str, set[str]] = {
    "backend.services.context_policy": {"__future__", "dataclasses", "enum", "typing", "collections"},
    "backend.text": {"__future__"},
    "backend.errors": {"__future__", "typing"},
}

# Who may know a library.
OWNERS: dict[str, list[str]] = {
    "databases": ["backend.store.database", "backend.store.postgres"],
    "asyncpg": ["backend.store.postgres"],
    "sqlite3": ["backend.store", "migrations", "scripts.clear_history"],
    "alembic": ["backend.store", "migrations"],
    "sqlalchemy": ["backend.store", "migrations"],
    "redis": ["backend.replicas.line"],
    "ollama": ["backend.llm.model"],
    "prometheus_client": ["backend.metrics"],
    "httpx": ["backend.llm.model"],
    "aiohttp": ["backend.llm.model", "backend.embedded"],
    "xllamacpp": ["backend.embedded"],
    "uvicorn": ["backend.__main__", "backend.app", "backend.frame_socket", "backend.embedded.__main__"],
    "websockets": ["backend.frame_socket"],
    "starlette": [
        "backend.__main__",
        "backend.app",
        "backend.connection",
        "backend.pages",
        "backend.access",
        "backend.identity",
        "backend.security",
        "backend.embedded",
    ],
}

# Imports inside a function, each with its reason.
DEFERRED: dict[tuple[str, str], str] = {
    ("backend.app", "backend.replicas.replica"): "a server that is alone has no use for Redis' client",
    ("backend.embedded.__main__", "backend.embedded.engine"): "llama.cpp's libraries load behind the first answers",
    ("backend.store.engines", "backend.store.postgres.database"): "the driver is slow to import, and most workspaces are a file",
    ("backend.store.engines", "backend.store.postgres.facts_rows"): "the same",
    ("backend.store.database", "backend.store.migrate"): "Alembic is slow to import, and most starts need no migration",
}

SQL_OWNERS = ["backend.store", "migrations", "scripts.clear_history"]
SQL = re.compile(r"\s*(SELECT\s.+\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|(CREATE|ALTER|DROP)\s+(TABLE|INDEX)|PRAGMA)\b", re.DOTALL)


@dataclass(frozen=True)
class Import:
    target: str
    is_deferred: bool


@dataclass(frozen=True)
class Module:
    name: str
    tree: ast.Module

    def imports(self) -> list[Import]:
        functions = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        deferred = {id(inner) for function in functions for inner in ast.walk(function)}
        return [
            Import(target, id(node) in deferred) for node in ast.walk(self.tree) if isinstance(node, ast.Import | ast.ImportFrom) for target in _targets(node)
        ]

    def is_in(self, packages: list[str]) -> bool:
        return any(is_part(self.name, package) for package in packages)


def _targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """What is imported, as full names; `from package import module` names the module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.level == 0, "relative imports are not used"
    for alias in node.names:
        name = f"{node.module}.{alias.name}"
        yield name if name in module_paths() else str(node.module)


def is_part(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@cache
def module_paths() -> dict[str, Path]:
    """Every module of ours outside the tests, by its name."""
    paths = [path for folder in ("backend", "migrations", "scripts") for path in (PROJECT / folder).rglob("*.py")]
    return {".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def modules() -> list[Module]:
    return [Module(name, ast.parse(path.read_text())) for name, path in sorted(module_paths().items())]


def layer_of(name: str) -> int | None:
    return next((depth for depth, layer in enumerate(LAYERS) if is_part(name, layer)), None)


def upward_imports(module: Module) -> list[str]:
    own = layer_of(module.name)
    if own is None:
        return []
    depths = {found.target: layer_of(found.target) for found in module.imports()}
    return [f"{module.name} imports {target} from above" for target, depth in depths.items() if depth is not None and depth < own]


def forbidden_imports(module: Module) -> list[str]:
    rules = [target for package, targets in FORBIDDEN.items() if is_part(module.name, package) for target in targets]
    found = [found.target for found in module.imports()]
    return [f"{module.name} imports {target}" for target in found if any(is_part(target, rule) for rule in rules)]


def impure_imports(module: Module) -> list[str]:
    allowed = ONLY.get(module.name)
    if allowed is None:
        return []
    roots = {found.target.partition(".")[0] for found in module.imports()}
    return [f"{module.name} imports {root}" for root in sorted(roots - allowed)]


def borrowed_libraries(module: Module) -> list[str]:
    roots = {found.target.partition(".")[0] for found in module.imports()}
    return [f"{module.name} imports {root}" for root in sorted(roots) if root in OWNERS and not module.is_in(OWNERS[root])]


def deferred_imports(module: Module) -> list[str]:
    return [
        f"{module.name} imports {found.target} inside a function"
        for found in module.imports()
        if found.is_deferred and module.name.startswith("backend") and (module.name, found.target) not in DEFERRED
    ]


def environment_reads(module: Module) -> list[str]:
    if module.name == "backend.settings" or not module.name.startswith("backend"):
        return []
    names = {"environ", "getenv", "environb"}
    attributes = [node.attr for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)]
    imported = [alias.name for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom) and node.module == "os" for alias in node.names]
    return [f"{module.name} reads os.{name}" for name in attributes + imported if name in names]


def sql_texts(module: Module) -> list[str]:
    if module.is_in(SQL_OWNERS):
        return []
    texts = [node.value for node in ast.walk(module.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [f"{module.name} contains SQL: {text[:60]}" for text in texts if SQL.match(text)]


RULES = [
    upward_imports,
    forbidden_imports,
    impure_imports,
    borrowed_libraries,
    deferred_imports,
    environment_reads,
    sql_texts,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_code_keeps(rule: object) -> None:
    assert callable(rule)
    assert [breach for module in modules() for breach in rule(module)] == []


def test_every_module_has_a_layer() -> None:
    names = [module.name for module in modules() if module.name.startswith("backend.")]
    assert len(names) > 20
    assert [name for name in names if layer_of(name) is None] == []


def test_there_is_no_import_cycle() -> None:
    ours = module_paths().keys()
    graph = {module.name: {found.target for found in module.imports()} & ours for module in modules()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_tables_name_only_what_is_there() -> None:
    """A rule for a module that has moved would hold nothing."""
    owners = [owner for names in OWNERS.values() for owner in names]
    deferred = [name for pair in DEFERRED for name in pair]
    named = {*LAYERS, *FORBIDDEN, *ONLY, *owners, *deferred, *SQL_OWNERS}
    assert sorted(named - module_paths().keys() - {"migrations"}) == []


def test_packages_run_nothing_when_imported() -> None:
    assert [str(path) for path in PROJECT.glob("backend/**/__init__.py") if path.read_text().strip()] == []


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (upward_imports, "backend.store.chats", "import backend.hub"),
        (upward_imports, "backend.llm.agent", "from backend import commands"),
        (forbidden_imports, "backend.hub", "from backend.store import chats"),
        (forbidden_imports, "backend.llm.agent", "import re"),
        (impure_imports, "backend.services.context_policy", "from time import time"),
        (impure_imports, "backend.services.context_policy", "from backend.store import chats"),
        (borrowed_libraries, "backend.services.chats", "import databases"),
        (borrowed_libraries, "backend.llm.agent", "from ollama import AsyncClient"),
        (borrowed_libraries, "backend.commands", "import sqlalchemy.orm"),
        (deferred_imports, "backend.app", "def f():\n    import json"),
        (environment_reads, "backend.app", "import os\nx = os.environ['X']"),
        (environment_reads, "backend.app", "from os import getenv"),
        (sql_texts, "backend.services.chats", "x = 'SELECT id FROM chats'"),
        (sql_texts, "backend.services.chats", "x = f'DELETE FROM {table}'"),
    ],
)
def test_a_breach_is_seen(rule: object, name: str, source: str) -> None:
    assert callable(rule)
    assert len(rule(Module(name, ast.parse(source)))) == 1
