"""A file's name from a chat's title, such as every system takes. Pure."""

from __future__ import annotations

import re
import unicodedata

# With an extension it stays below the 255 bytes that file systems allow, also where a browser adds a number.
MAX_BYTES = 180

_FORBIDDEN = re.compile(r'[<>:"/\\|?*]')
# Names of devices on Windows, whatever follows the first dot.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)


def filename(title: str, extension: str) -> str:
    """The title without what no name may hold, cut; `chat` where nothing is left."""
    visible = "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in unicodedata.normalize("NFC", title))
    name = " ".join(_FORBIDDEN.sub(" ", visible).split())
    name = name.encode()[:MAX_BYTES].decode(errors="ignore").strip(". ")
    if _DEVICES.match(name):
        name = f"chat {name}"
    return f"{name or 'chat'}.{extension}"
