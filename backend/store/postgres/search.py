"""Full text on PostgreSQL: the words of a query as its own text search reads them.

The index holds each word as it is and its stem. Stems are of both languages, so that a word's other forms are found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backend.store.connection import Connection
from backend.store.stems import WORD, fold, stem

MAX_WORDS = 16
# Weighing a message reads its whole text. Of those that match, the newest are weighed.
MAX_WEIGHED = 200
# The index knows which words a message has, not in what order: for words in a row the newest with all of them are read.
MAX_READ = 10_000
READ_CHARACTERS = 100_000
# A common word's newest messages are looked for here first: all of its messages may be a million.
RECENT_MESSAGES = 20_000
MIN_BEGINNING = 2

_FOLDED = f"replace(lower(left(content, {READ_CHARACTERS})), 'ё', 'е')"
_BETWEEN_WORDS = "[^[:alnum:]]"

# What the index holds, word for word: PostgreSQL uses it for no other condition.
_INDEXED = "is_ephemeral = 0 AND role IN ('user', 'assistant') AND status <> 'streaming'"


@dataclass(frozen=True, slots=True)
class Term:
    """A word in any form, or words in a row; the last one may be the beginning of one that is being typed."""

    words: tuple[str, ...]
    is_typed: bool = False
    is_phrase: bool = False

    def expression(self, number: int) -> str:
        """A tsquery over the value `:term{number}`."""
        as_it_is = f"to_tsquery('simple', :term{number})"
        return as_it_is if self.is_phrase else f"({as_it_is} || to_tsquery('russian', :word{number}))"

    def candidates(self, number: int) -> str:
        """A tsquery that the index answers alone: for words in a row, those with all of them."""
        return f"to_tsquery('simple', :words{number})" if self.is_phrase else self.expression(number)

    def check(self, number: int) -> str:
        """What a candidate's text has to meet."""
        return f"{_FOLDED} ~ :row{number}" if self.is_phrase else "TRUE"

    def values(self, number: int) -> dict[str, str]:
        """Words are letters and digits, so that nothing of them is an operator. Weight A tells words in their places from stems."""
        if not self.is_phrase:
            return {f"term{number}": f"{self.words[0]}{':*' if self.is_typed else ''}", f"word{number}": self.words[0]}
        *others, last = self.words
        end = "" if self.is_typed else f"($|{_BETWEEN_WORDS})"
        return {
            f"term{number}": " <-> ".join([*(f"{word}:A" for word in others), f"{last}:{'*' if self.is_typed else ''}A"]),
            f"words{number}": " & ".join([*others, f"{last}{':*' if self.is_typed else ''}"]),
            f"row{number}": f"(^|{_BETWEEN_WORDS}){f'{_BETWEEN_WORDS}+'.join(self.words)}{end}",
        }

    def forms(self, text: str) -> set[str]:
        """Those words of a text that the term means."""
        stems = {stem(word) for word in self.words}
        return {word for word in WORD.findall(fold(text)) if word in self.words or (not self.is_phrase and stem(word) in stems)}


def terms_of(query: str) -> list[Term]:
    """A query's words and phrases as a person types them; a quote that isn't closed yet goes to the end."""
    terms: list[Term] = []
    parts = query.split('"')
    for number, part in enumerate(parts):
        words = WORD.findall(fold(part))[:MAX_WORDS]
        is_typed = number == len(parts) - 1 and bool(words) and fold(part).endswith(words[-1]) and len(words[-1]) >= MIN_BEGINNING
        if number % 2 == 0:
            terms += [Term((word,), is_typed and i == len(words) - 1) for i, word in enumerate(words)]
        elif words:
            terms.append(Term(tuple(words), is_typed, is_phrase=True))
    return list(dict.fromkeys(terms))[:MAX_WORDS]


async def matching(
    tx: Connection, terms: Sequence[Term], operator: str, condition: str, values: dict[str, Any], limit: int, *, is_one_chat: bool
) -> list[dict[str, Any]]:
    """The messages with all of the terms (`&&`) or any (`||`) that meet the condition, best first, with their chat's title."""
    expressions = [term.expression(number) for number, term in enumerate(terms)]
    met = " + ".join(f"(words @@ {expression})::int" for expression in expressions)
    numbered = list(enumerate(terms))
    groups = [numbered] if operator == "&&" else [[pair for pair in numbered if not pair[1].is_phrase], *([pair] for pair in numbered if pair[1].is_phrase)]
    found = " UNION ".join(f"({_newest(group, operator, condition, is_one_chat)})" for group in groups if group)
    return await tx.fetch_all(
        f"""
        WITH asked AS MATERIALIZED (SELECT {f" {operator} ".join(expressions)} AS query),
        newest AS MATERIALIZED (SELECT id FROM ({found}) AS found ORDER BY id DESC LIMIT :weighed),
        read AS MATERIALIZED (SELECT id, message_words(content) AS words FROM newest JOIN chat_messages USING (id))
        SELECT message.id, role, content, message.created_at, session_id, title
        FROM read JOIN chat_messages AS message ON message.id = read.id JOIN chats ON chats.id = session_id
        ORDER BY {met} DESC, ts_rank(words, (SELECT query FROM asked), 1) DESC, message.id DESC LIMIT :limit
        """,
        {
            **values,
            **{name: value for number, term in numbered for name, value in term.values(number).items()},
            "weighed": MAX_WEIGHED,
            "limit": limit,
        },
    )


def _newest(terms: Sequence[tuple[int, Term]], operator: str, condition: str, is_one_chat: bool) -> str:
    """A SELECT of the ids to weigh. What the index finds is materialized: the planner would rather read all messages, newest first."""
    query = f" {operator} ".join(term.candidates(number) for number, term in terms)
    checks = " AND ".join(term.check(number) for number, term in terms)
    most = MAX_READ if any(term.is_phrase for _, term in terms) else MAX_WEIGHED
    whole = f"SELECT id FROM chat_messages WHERE {_INDEXED} AND message_words(content) @@ (SELECT {query}) AND {condition}"
    recent = f"{whole} AND {'FALSE' if is_one_chat else f'id > (SELECT MAX(id) FROM chat_messages) - {RECENT_MESSAGES}'}"
    return f"""
        WITH recent AS MATERIALIZED ({recent}),
        found AS MATERIALIZED (
            SELECT id FROM recent WHERE (SELECT COUNT(*) FROM recent) >= {most}
            UNION ALL {whole} AND (SELECT COUNT(*) FROM recent) < {most}
        ),
        candidates AS MATERIALIZED (SELECT id FROM found ORDER BY id DESC LIMIT {most})
        SELECT id FROM candidates JOIN chat_messages USING (id) WHERE {checks} ORDER BY id DESC LIMIT :weighed
    """
