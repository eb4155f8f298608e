"""Full text over the messages of all chats of a user, as a person types: all of the words first, then any of them."""

from __future__ import annotations

from dataclasses import dataclass

from backend.store.connection import Connection
from backend.store.message_search import MAX_CANDIDATES, MAX_WORDS, Hit, forms_in, snippet, words_beginning_like
from backend.store.postgres import search as postgres
from backend.store.stems import WORD, fold, forms_among

# Weighing messages against each other reads all places of all words. Beyond this many it would take
# longer than a person types, and such words say little: the newest messages come first then.
MAX_PLACES = 20_000
# Of a word's messages the newest are weighed.
MAX_WEIGHED = 1_000
# A single letter begins too many words to be looked for in time.
MIN_BEGINNING = 2


@dataclass(frozen=True, slots=True)
class ChatHit(Hit):
    chat_id: str
    title: str


@dataclass(frozen=True, slots=True)
class _Term:
    """What a message has to have: one of some words, or words in a row; `beginning` is the last one while it is typed."""

    words: tuple[str, ...]
    beginning: str = ""
    is_phrase: bool = False
    is_common: bool = False

    def expression(self) -> str:
        """FTS5's. Words are letters and digits, and in quotes, so that nothing that was typed is an operator."""
        words = [f'"{word}"' for word in self.words] + ([f'"{self.beginning}" *'] if self.beginning else [])
        return f"({(' + ' if self.is_phrase else ' OR ').join(words)})"


async def search(tx: Connection, owner: str, query: str, session_id: str | None, limit: int) -> list[ChatHit]:
    """The permanent messages of all the user's chats or of one of them, best first; those hidden from the model and the newest question too.

    Words are found in any form and words in quotes in a row; the last one also by its beginning, unless something follows it.
    """
    if tx.is_postgres:
        return await _search_postgres(tx, owner, query, session_id, limit)
    terms = await _terms(tx, query)
    hits = await _matching(tx, " AND ", terms, owner, session_id, limit) if terms else []
    if len(terms) > 1 and len(hits) < limit:
        known = {hit.message_id for hit in hits}
        telling = [term for term in terms if not term.is_common] or terms
        others = await _matching(tx, " OR ", telling, owner, session_id, limit)
        hits += [hit for hit in others if hit.message_id not in known][: limit - len(hits)]
    return hits


async def _search_postgres(tx: Connection, owner: str, query: str, session_id: str | None, limit: int) -> list[ChatHit]:
    terms = postgres.terms_of(query)
    condition = "session_id = :session_id" if session_id else "session_id IN (SELECT id FROM chats WHERE owner = :owner)"
    values = {"session_id": session_id} if session_id else {"owner": owner}
    rows = await postgres.matching(tx, terms, "&&", condition, values, limit, is_one_chat=session_id is not None) if terms else []
    if len(terms) > 1 and len(rows) < limit:
        known = {row["id"] for row in rows}
        others = await postgres.matching(tx, terms, "||", condition, values, limit, is_one_chat=session_id is not None)
        rows += [row for row in others if row["id"] not in known][: limit - len(rows)]
    beginnings = tuple(term.words[-1] for term in terms if term.is_typed)
    return [
        ChatHit(
            row["id"], row["role"], row["created_at"], snippet(row["content"], forms_in(row["content"], terms), beginnings), row["session_id"], row["title"]
        )
        for row in rows
    ]


async def _terms(tx: Connection, query: str) -> list[_Term]:
    """A query's words and phrases; a quote that isn't closed yet goes to the end."""
    terms: list[_Term] = []
    parts = query.split('"')
    for number, part in enumerate(parts):
        words = WORD.findall(fold(part))[:MAX_WORDS]
        is_typed = number == len(parts) - 1 and bool(words) and fold(part).endswith(words[-1]) and len(words[-1]) >= MIN_BEGINNING
        if number % 2 == 0:
            terms += [await _word(tx, word, is_typed and i == len(words) - 1) for i, word in enumerate(words)]
        elif words:
            beginning = words.pop() if is_typed else ""
            terms.append(_Term(tuple(words), beginning, is_phrase=True, is_common=True))
    return list(dict.fromkeys(terms))[:MAX_WORDS]


async def _word(tx: Connection, word: str, is_typed: bool) -> _Term:
    candidates = await words_beginning_like(tx, word) if len(word) >= MIN_BEGINNING else {}
    forms = tuple(forms_among(word, candidates) or [word])
    if sum(candidates.get(form, 0) for form in forms) > MAX_PLACES:
        return _Term(forms, is_common=True)
    begun = [count for candidate, count in candidates.items() if candidate.startswith(word)] if is_typed else []
    is_common = sum(begun) > MAX_PLACES or (is_typed and len(candidates) == MAX_CANDIDATES)
    return _Term(forms, word if is_typed else "", is_common=is_common)


async def _matching(tx: Connection, operator: str, terms: list[_Term], owner: str, session_id: str | None, limit: int) -> list[ChatHit]:
    weighed = not any(term.is_common for term in terms)
    rows = await tx.fetch_all(
        f"""
        WITH candidates AS MATERIALIZED (
            SELECT message_index.rowid AS id, {"bm25(message_index)" if weighed else "0"} AS weight FROM {_ONE_CHAT if session_id else _ALL_CHATS}
            ORDER BY message_index.rowid DESC LIMIT :candidates
        ), best AS MATERIALIZED (SELECT id, weight FROM candidates ORDER BY weight, id DESC LIMIT :limit)
        SELECT message.id, role, content, message.created_at, session_id, title
        FROM best CROSS JOIN chat_messages AS message ON message.id = best.id CROSS JOIN chats ON chats.id = message.session_id
        ORDER BY weight, message.id DESC
        """,
        {
            "words": operator.join(term.expression() for term in terms),
            **({"session_id": session_id} if session_id else {"owner": owner}),
            "candidates": MAX_WEIGHED if weighed else limit,
            "limit": limit,
        },
    )
    forms = [word for term in terms for word in term.words]
    beginnings = tuple(term.beginning for term in terms if term.beginning)
    return [ChatHit(row["id"], row["role"], row["created_at"], snippet(row["content"], forms, beginnings), row["session_id"], row["title"]) for row in rows]


# What is in the index is permanent and whole. A chat's messages lie close together, which spares looking at the others'.
_ALL_CHATS = """
    message_index CROSS JOIN chat_messages ON chat_messages.id = message_index.rowid CROSS JOIN chats ON chats.id = session_id
    WHERE message_index MATCH :words AND owner = :owner
"""
_ONE_CHAT = """
    message_index JOIN chat_messages ON chat_messages.id = message_index.rowid
    WHERE message_index MATCH :words AND session_id = :session_id
        AND message_index.rowid >= (SELECT MIN(id) FROM chat_messages WHERE session_id = :session_id)
        AND message_index.rowid <= (SELECT MAX(id) FROM chat_messages WHERE session_id = :session_id)
"""
