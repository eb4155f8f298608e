"""The head of a GGUF file: what has to be told about a model before its weights are loaded."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from backend.errors import ModelUnavailable

MAGIC = b"GGUF"
STRING, ARRAY = 8, 9
# The format's other value types, as `struct` spells them.
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# No key or fact comes near it: a longer string means that the file is damaged.
MAX_STRING_BYTES = 1 << 20


@dataclass(frozen=True)
class ModelFile:
    path: Path
    size_bytes: int
    modified_at: float
    architecture: str
    context_tokens: int
    parameter_size: str


def read_model_file(path: Path) -> ModelFile:
    """Read the head of `path`. Raises ModelUnavailable with one line when it holds no model."""
    try:
        with path.open("rb") as file:
            head = _read_head(file)
        status = path.stat()
        architecture = head["general.architecture"]
        return ModelFile(
            path=path,
            size_bytes=status.st_size,
            modified_at=status.st_mtime,
            architecture=architecture,
            context_tokens=head[f"{architecture}.context_length"],
            parameter_size=head.get("general.size_label", ""),
        )
    except OSError as error:
        raise ModelUnavailable(f"The model file {path.name} can't be read: {error.strerror}.") from error
    except (struct.error, KeyError, ValueError) as error:
        raise ModelUnavailable(f"The model file {path.name} is not a complete GGUF file.") from error


def _read_head(file: BinaryIO) -> dict[str, Any]:
    if file.read(len(MAGIC)) != MAGIC:
        raise ValueError("no GGUF file")
    _version, _tensors, entries = _unpack(file, "IQQ")
    head: dict[str, Any] = {}
    for _ in range(entries):
        key = _read_string(file)
        if key.startswith("tokenizer."):
            break  # the vocabulary: long, and after the facts in the order that every converter writes
        head[key] = _read_value(file, *_unpack(file, "I"))
    return head


def _read_value(file: BinaryIO, kind: int) -> Any:
    if kind == STRING:
        return _read_string(file)
    if kind == ARRAY:
        item_kind, count = _unpack(file, "IQ")
        return [_read_value(file, item_kind) for _ in range(count)]
    (number,) = _unpack(file, NUMBERS[kind])
    return number


def _read_string(file: BinaryIO) -> str:
    (length,) = _unpack(file, "Q")
    if length > MAX_STRING_BYTES:
        raise ValueError("a string is longer than any that the format needs")
    return file.read(length).decode()


def _unpack(file: BinaryIO, form: str) -> tuple[Any, ...]:
    layout = struct.Struct("<" + form)
    return layout.unpack(file.read(layout.size))
