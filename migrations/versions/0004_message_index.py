"""Full text over the permanent messages, kept true by triggers of built-in functions: any program may write the table.

The index holds words, no text (`content=''`), so each row has to be taken out by the words that it went in with.
On PostgreSQL an index of an expression does the same.
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


# PostgreSQL refuses a row whose words are more than a megabyte; those of a longer text's beginning are found.
POSTGRES_CHARACTERS = 100_000


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _index_in_sqlite()
    else:
        _index_in_postgres()


def _index_in_postgres() -> None:
    """Each word as it is, for phrases and beginnings, and its stem; weight A tells them apart. `russian` takes Latin words for English ones."""
    op.execute(
        f"""
        CREATE FUNCTION message_words(content text) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
            SELECT setweight(to_tsvector('pg_catalog.simple', words), 'A') || to_tsvector('pg_catalog.russian', words)
            FROM (SELECT regexp_replace(replace(lower(left(content, {POSTGRES_CHARACTERS})), 'ё', 'е'), '[^[:alnum:]]+', ' ', 'g') AS words)
        $$
        """
    )
    op.execute(f"CREATE INDEX message_index ON chat_messages USING gin (message_words(content)) WHERE {_is_indexed('chat_messages')}")


def _index_in_sqlite() -> None:
    op.execute("CREATE VIRTUAL TABLE message_index USING fts5(content, content='', tokenize='unicode61 remove_diacritics 0')")
    op.execute("CREATE VIRTUAL TABLE message_terms USING fts5vocab(message_index, row)")
    op.execute(
        f"""
        CREATE TRIGGER message_index_added AFTER INSERT ON chat_messages WHEN {_is_indexed("new")}
        BEGIN {_add("SELECT new.id, " + _words("new"))}; END
        """
    )
    op.execute(
        f"""
        CREATE TRIGGER message_index_changed AFTER UPDATE OF id, role, content, is_ephemeral, status ON chat_messages
        BEGIN {_remove("old")} WHERE {_is_indexed("old")}; {_add("SELECT new.id, " + _words("new"))} WHERE {_is_indexed("new")}; END
        """
    )
    op.execute(
        f"""
        CREATE TRIGGER message_index_removed AFTER DELETE ON chat_messages WHEN {_is_indexed("old")}
        BEGIN {_remove("old")}; END
        """
    )
    op.execute(f"{_add('SELECT id, ' + _words('chat_messages'))} FROM chat_messages WHERE {_is_indexed('chat_messages')}")


def _is_indexed(row: str) -> str:
    """A reply is indexed when it is whole: while it streams its text is written again and again."""
    return f"{row}.is_ephemeral = 0 AND {row}.role IN ('user', 'assistant') AND {row}.status <> 'streaming'"


def _words(row: str) -> str:
    """Russian is written with ё or without it."""
    return f"replace(replace({row}.content, 'Ё', 'Е'), 'ё', 'е')"


def _add(selection: str) -> str:
    return f"INSERT INTO message_index (rowid, content) {selection}"


def _remove(row: str) -> str:
    return f"INSERT INTO message_index (message_index, rowid, content) SELECT 'delete', {row}.id, {_words(row)}"
