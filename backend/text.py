"""The border for text: what may be stored and sent on.

Lone surrogates can't be encoded as UTF-8, so one of them in a stored row would break every later
replay; PostgreSQL refuses NUL and SQLite's string functions stop at it. Both become U+FFFD where
text enters: in a client's frame and in a model's output.
"""

from __future__ import annotations


def clean_text(text: str) -> str:
    """Return `text` with escaped surrogate pairs joined, and lone surrogates and NUL replaced by U+FFFD."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", "\ufffd")
