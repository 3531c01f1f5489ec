"""Bytes of a file as text for a model, and what they are when they are no text."""

from __future__ import annotations

from typing import Final

_KINDS: Final = {
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a ZIP archive (or an office document)",
    b"\x1f\x8b": "gzip data",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"SQLite format 3": "an SQLite database",
    b"\x7fELF": "a program",
    b"\x28\xb5\x2f\xfd": "zstd data",
}


def decoded(data: bytes) -> str | None:
    """The text of UTF-8 bytes, None when they are something else."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def kind(data: bytes) -> str:
    """What bytes that are no text seem to be."""
    named = next((name for start, name in _KINDS.items() if data.startswith(start)), "")
    return named or ("binary data" if b"\0" in data else "text in another encoding than UTF-8")
