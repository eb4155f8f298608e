"""Full text over the permanent messages: the index of their words, and how words in other forms are found in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from backend.store.connection import Connection
from backend.store.postgres.search import Term, matching
from backend.store.stems import WORD, common_beginning, fold, forms_among, words_of

# A question's words, and the words of the index that begin like one of them.
MAX_WORDS = 16
MAX_CANDIDATES = 500
# A snippet is looked for around the first words that fit, not in all of a long text.
SNIPPET_SEARCH_CHARACTERS = 5_000

SNIPPET_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Hit:
    message_id: int
    role: str
    created_at: str
    snippet: str


async def search(tx: Connection, session_id: str, query: str, limit: int) -> list[Hit]:
    """The chat's messages with words of `query` in any form, best first; hidden ones and working material never.

    The newest question is not found while it has no answer: it is where the query comes from.
    """
    if tx.is_postgres:
        return await _search_postgres(tx, session_id, query, limit)
    forms = [form for word in words_of(query)[:MAX_WORDS] for form in await _forms(tx, word)]
    if not forms:
        return []
    rows = await tx.fetch_all(
        f"""
        SELECT chat_messages.id, role, chat_messages.content, created_at
        FROM message_index JOIN chat_messages ON chat_messages.id = message_index.rowid
        WHERE message_index MATCH :words AND session_id = :session_id AND is_ephemeral = 0 AND hidden = 0
            AND chat_messages.id NOT IN ({_UNANSWERED})
        ORDER BY message_index.rank, chat_messages.id DESC LIMIT :limit
        """,
        {"words": " OR ".join(f'"{form}"' for form in forms), "session_id": session_id, "limit": limit},
    )
    return [Hit(row["id"], row["role"], row["created_at"], snippet(row["content"], forms)) for row in rows]


async def _search_postgres(tx: Connection, session_id: str, query: str, limit: int) -> list[Hit]:
    terms = [Term((word,)) for word in words_of(query)[:MAX_WORDS]]
    if not terms:
        return []
    condition = f"session_id = :session_id AND hidden = 0 AND id NOT IN ({_UNANSWERED})"
    rows = await matching(tx, terms, "||", condition, {"session_id": session_id}, limit, is_one_chat=True)
    return [Hit(row["id"], row["role"], row["created_at"], snippet(row["content"], forms_in(row["content"], terms))) for row in rows]


def forms_in(text: str, terms: list[Term]) -> list[str]:
    return [form for term in terms for form in term.forms(text)]


async def _forms(tx: Connection, word: str) -> list[str]:
    """The forms of a word that stand in the index."""
    return forms_among(word, await words_beginning_like(tx, word))


async def words_beginning_like(tx: Connection, word: str) -> dict[str, int]:
    """The first words of the index that begin as the forms of a word do, each with the number of messages it stands in."""
    beginning = common_beginning(word)
    rows = await tx.fetch_all(
        "SELECT term, doc FROM message_terms WHERE term >= :first AND term < :last LIMIT :limit",
        {"first": beginning, "last": beginning + chr(0x10FFFF), "limit": MAX_CANDIDATES},
    )
    return {row["term"]: row["doc"] for row in rows}


# The newest question, while it has no answer.
_UNANSWERED = """
    SELECT id FROM (SELECT id, role FROM chat_messages
    WHERE session_id = :session_id AND is_ephemeral = 0 AND role <> 'tool' AND status <> 'streaming' ORDER BY id DESC LIMIT 1) AS newest
    WHERE role = 'user'
"""


def snippet(text: str, forms: list[str], beginnings: tuple[str, ...] = ()) -> str:
    """A piece of the text on one line, around the longest of its words that are among the forms or begin like one that is being typed."""
    wanted = set(forms)
    found: list[re.Match[str]] = []
    for match in WORD.finditer(text):
        if found and match.start() > found[0].start() + SNIPPET_SEARCH_CHARACTERS:
            break
        word = fold(match.group())
        if word in wanted or (beginnings and word.startswith(beginnings)):
            found.append(match)
    middle = max(found, key=lambda match: len(match.group())).start() if found else 0
    start = max(0, min(middle - SNIPPET_CHARACTERS // 3, len(text) - SNIPPET_CHARACTERS))
    piece = re.sub(r"\s+", " ", text[start : start + SNIPPET_CHARACTERS]).strip()
    return f"{'… ' if start > 0 else ''}{piece}{' …' if start + SNIPPET_CHARACTERS < len(text) else ''}"
