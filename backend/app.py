"""The composition root: the one place where the parts are made and wired together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from backend import pages
from backend.access import AccessControl, has_login
from backend.commands import Commands
from backend.connection import Connection, serve
from backend.embedded.process import EmbeddedProcess
from backend.identity import Identity
from backend.llm import tools
from backend.llm.backend import ModelBackend
from backend.llm.core.registry import Registry
from backend.llm.prompt_counts import PromptCounts
from backend.llm.tokens import TokenCounter
from backend.metrics import CONTENT_TYPE, Metrics
from backend.protocol import encode_welcome
from backend.readiness import Readiness
from backend.replicas.alone import Alone
from backend.replicas.owner import Replicas
from backend.security import Guard, content_security_policy
from backend.services.approvals import Approvals
from backend.services.archives import Archives
from backend.services.chat_rows import ChatRows
from backend.services.chats import Chats
from backend.services.contexts import Contexts
from backend.services.facts import Facts
from backend.services.forks import Forks
from backend.services.journal import Journal
from backend.services.models import Models
from backend.services.ownership import Ownership
from backend.services.prompting import Prompting
from backend.services.pulls import Pulls
from backend.services.receipt_rows import ReceiptRows
from backend.services.records import Clock
from backend.services.recovery import Recovery
from backend.services.replies import Replies
from backend.services.rewind import Rewind
from backend.services.search import Search
from backend.services.sent import SentRequests
from backend.services.settlement import Settlement
from backend.services.temporary import TemporaryChats
from backend.services.tool_runs import ToolRuns
from backend.services.turn_runner import TurnRunner
from backend.services.turns import Turns
from backend.services.variant_rows import VariantRows
from backend.services.variants import Variants
from backend.services.working import WorkingStates
from backend.settings import Settings
from backend.store import deleted_facts
from backend.store.engines import database_at, facts_query_at

SERVER_VERSION = "0.1.0"

# A deleted task or note can be brought back for a day; the next start after it deletes it for good.
KEEP_DELETED_SECONDS = 86_400


def frame_bytes(settings: Settings) -> int:
    """The longest frame a client may send: a longest message with every Cyrillic letter written as an escape."""
    return settings.max_message_bytes * 3 + 65_536


def create_app(settings: Settings) -> Starlette:
    """Build the server. The database is opened, and the model servers looked at, in its lifespan.

    Raises SettingsError when the page's files aren't there; the lifespan raises StoreError.
    """
    database, clock, counter = database_at(settings.database_url), Clock(), TokenCounter()
    replicas = _replicas(settings)
    hub = replicas.hub
    registry, metrics = Registry.discover(tools), Metrics()
    backend = ModelBackend(settings, EmbeddedProcess(settings.embedded_model))
    journal = Journal(database, replicas)
    chat_rows, states = ChatRows(settings), WorkingStates(settings, registry, counter, clock, metrics)
    tool_runs = ToolRuns(registry, states, journal, clock, facts_query_at(settings.database_url, database))
    prompting = Prompting(settings, registry, states, counter, clock)
    replies, sent = Replies(journal, clock), SentRequests(PromptCounts(), clock)
    approvals = Approvals(journal, clock)
    receipt_rows = ReceiptRows(registry, clock)
    variant_rows = VariantRows(receipt_rows)
    runner = TurnRunner(
        journal=journal,
        chat_rows=chat_rows,
        tool_runs=tool_runs,
        prompting=prompting,
        sent=sent,
        replies=replies,
        registry=registry,
        backend=backend,
        settlement=Settlement(journal, chat_rows, states, approvals, variant_rows),
        approvals=approvals,
        states=states,
        counter=counter,
        clock=clock,
        observer=metrics,
    )
    turns = Turns(
        settings=settings,
        journal=journal,
        chat_rows=chat_rows,
        tool_runs=tool_runs,
        registry=registry,
        approvals=approvals,
        states=states,
        rewind=Rewind(registry, states, receipt_rows, variant_rows),
        runner=runner,
        peers=replicas,
        clock=clock,
    )
    pulls = Pulls(backend, journal, replicas, clock)
    recovery = Recovery(journal, chat_rows, variant_rows, states, sent, turns, pulls)
    metrics.watch_turns(turns.count_running, {"model": turns.count_waiting_for_model, "person": turns.count_waiting_for_person})
    chats = Chats(journal, chat_rows, states, turns, replies, sent, clock)
    temporary = TemporaryChats(journal, replicas, chats, clock)
    contexts = Contexts(journal, chat_rows, states, turns, prompting, sent, backend, registry, counter)
    models = Models(backend, journal, pulls, replicas)
    ownership = Ownership(journal)
    commands = Commands(
        ownership=ownership,
        chats=chats,
        archives=Archives(journal, chat_rows, chats, replicas, clock, settings.max_message_bytes),
        forks=Forks(journal, chat_rows, chats, clock),
        search=Search(journal, chat_rows),
        turns=turns,
        variants=Variants(journal, chat_rows, variant_rows, turns, states),
        contexts=contexts,
        models=models,
        facts=Facts(journal, chat_rows),
        registry=registry,
    )

    readiness = Readiness(database.check)
    dispatch = replicas.route(recovery, commands.dispatch, ownership.chat_of)

    async def welcome(connection: Connection) -> None:
        """Send what a page needs to begin, and let no event slip between that and the first one."""
        await models.known()
        limits = {
            "history_limit": settings.history_limit,
            "ttl_messages": settings.ttl_messages,
            "max_message_bytes": settings.max_message_bytes,
            "max_frame_bytes": frame_bytes(settings),
            "login": has_login(settings.access_token),
            "user": connection.user or None,
        }

        hub.attach(connection.outbox)  # before the list is read: what changes meanwhile waits behind the first frame
        shown = {"chats": await chats.list_all(connection.user), **models.describe(), "pulls": await models.pulls()}
        values = {"epoch": hub.epoch, "server_version": SERVER_VERSION, **shown, "settings": limits}
        connection.outbox.put_first(encode_welcome(values))

    async def socket(websocket: WebSocket) -> None:
        with models.watched(), metrics.sockets.track_inprogress():
            await serve(websocket, hub, welcome, dispatch)

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        has_database = await readiness.ask()
        status = 200 if has_database and replicas.is_ready else 503
        if not request.scope["is_known"]:
            return PlainTextResponse("ready\n" if status == 200 else "not ready\n", status)
        body = {"database": "ok" if has_database else "failed", "model_backend": backend.kind}
        if not replicas.is_alone:
            body["replicas"] = "ok" if replicas.is_ready else "failed"
        return JSONResponse(body, status)

    async def figures(_: Request) -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            await database.connect()
            await journal.write(lambda unit: deleted_facts.purge(unit.tx, clock.later(-KEEP_DELETED_SECONDS)))
            await temporary.begin()
            await models.begin()
            await replicas.begin()
            yield
        finally:
            await contexts.close()  # its watchers are told while the chats are still this server's
            await replicas.leave()
            await turns.close()
            await temporary.close()
            await replicas.close()
            await models.close()
            await backend.close()
            await database.disconnect()

    guard = Middleware(
        Guard,
        bound_host=settings.host,
        allowed_origins=settings.allowed_origins,
        policy=content_security_policy(pages.import_map()),
    )
    served = [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", figures)]
    routes = [*served, WebSocketRoute("/ws", socket), *pages.routes()]
    identity = [Middleware(Identity, header=settings.identity_header, proxies=settings.trusted_proxies)]
    if settings.identity_header is not None:  # once the proxy is known by its own address, its word on the client's counts
        identity.append(Middleware(ProxyHeadersMiddleware, trusted_hosts=[str(network) for network in settings.trusted_proxies]))
    access = Middleware(AccessControl, token=settings.access_token)
    return Starlette(routes=routes, middleware=[guard, *identity, access], lifespan=lifespan)


def _replicas(settings: Settings) -> Replicas:
    if settings.redis_url is None:
        return Alone()
    # Not at the top: a server that is alone has no use for Redis' client.
    from backend.replicas.replica import Replica

    return Replica(settings.redis_url)
