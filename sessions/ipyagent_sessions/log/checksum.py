"""A line that carries its own checksum.

    {"c":"9f2d01aa",...}\\n

`c` is the CRC-32 (ISO-HDLC, as in zlib) of the JSON object without `c`, in eight lower-case hex digits, and always comes
first: the checked bytes are `{` followed by everything after the comma.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

PREFIX: Final = len(b'{"c":"00000000",')
BRACE: Final = zlib.crc32(b"{")

_T = TypeVar("_T")


def seal(body: bytes) -> bytes:
    """The line of an object that is not empty, with its checksum and its line feed."""
    return b'{"c":"%08x",%b\n' % (zlib.crc32(body), body[1:])


def verifies(line: bytes) -> bool:
    """Whether a line begins with the checksum of the rest, to the letter."""
    return line[:PREFIX] == b'{"c":"%08x",' % zlib.crc32(line[PREFIX:], BRACE)


def read(line: bytes, decode: Callable[[bytes], _T]) -> _T | None:
    """What `decode` makes of a line without its line feed, None when the line does not verify.

    It gets the line as it is: the checksum is a field that what is read does not have.
    """
    if not verifies(line):
        return None
    try:
        return decode(line)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None
