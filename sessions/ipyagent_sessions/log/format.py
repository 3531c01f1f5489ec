"""One event is one line.

    {"c":"9f2d01aa","seq":17,"event_type":"ActivityCompleted",...}\\n

`c` is the checksum of the canonical event, as `checksum` describes it.  The line is JSON for any other program.  Lines end in
0x0A only; U+2028 and U+2029 are ordinary characters.  A carriage return before the line feed and a byte-order mark at the
start of the file are tolerated on reading and never written.

Reading never stops at damage.  `scan` yields each verified event and a `Damage` for each stretch of bytes that does not
verify. Inside a broken stretch it looks for the start of a line's text again and keeps what verifies, so two records glued
together, or a torn record followed by a whole one, lose only what is really lost.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ipyagent_sessions.events import Event, decode, encode
from ipyagent_sessions.log.checksum import BRACE, PREFIX, read, seal, verifies

_START: Final = b'{"c":"'
_RECORD: Final = re.compile(rb'\{"c":"[0-9a-f]{8}","seq":')
_ENDS_TRIED: Final = 64
_FIRST_BLOCK: Final = 4 * 2**10
_BLOCK: Final = 32 * 2**10
"""A journal is read in pieces of so many bytes, each twice the one before it up to the second, as measured with 2,000 events:
what is made of a larger piece is memory that is new to the process, which costs more than opening the file for each."""
_BOM: Final = b"\xef\xbb\xbf"


class Damage(Struct, frozen=True):
    """A stretch of a file that does not verify.

    `kind` is torn (the unfinished end of a file), nul (a run of zero bytes), glued (records without a line feed between them),
    checksum, or malformed.  `offset` and `length` are in bytes.
    """

    file: str
    offset: int
    length: int
    kind: str

    def __str__(self) -> str:
        return f"{self.file}: {self.kind}, {self.length} bytes at offset {self.offset}"


def line_of(event: Event) -> bytes:
    """The line of `event`, with its checksum and its line feed."""
    return seal(encode(event))


def event_of(line: bytes) -> Event | None:
    """The event of one line without its line feed, or None when the line does not verify."""
    return read(line, decode)


def scan(data: bytes, file: str, base: int = 0) -> Iterator[tuple[int, Event] | Damage]:
    """The events of a journal with the offset behind each, and its damage, in order.

    The offset lies behind the line feed, or inside a line where an event is followed by bytes that do not verify.
    `base` is the offset of `data` in the file.
    """
    at = len(_BOM) if base == 0 and data.startswith(_BOM) else 0
    size = len(data)
    while at < size:
        end = data.find(b"\n", at)
        line = data[at : size if end < 0 else end]
        stop = size if end < 0 else end + 1
        event = event_of(line) or (event_of(line[:-1]) if line.endswith(b"\r") else None)
        if event is not None:
            if end < 0:
                yield Damage(file, base + at, size - at, "torn")
            else:
                yield base + stop, event
        elif line.strip(b"\r"):
            yield from _salvage(line, file, base + at, last=end < 0, stop=base + stop)
        at = stop


def scan_file(path: Path) -> Iterator[list[Event] | Damage]:
    """The events of a whole journal in lists, and its damage, in order.  Raises OSError.

    Little of the file is in memory at a time, first the least: who wants one event waits for few.  The file is open only while
    a piece is read: Windows removes no open file, and who asks may take hours over what it gets.
    """
    base, rest, size = 0, b"", _FIRST_BLOCK
    while block := _block(path, base + len(rest), max(size, len(rest))):
        data = rest + block
        stop = data.rfind(b"\n") + 1
        yield from _lists(data[:stop], path.name, base)
        base, rest, size = base + stop, data[stop:], min(size * 2, _BLOCK)
    yield from _lists(rest, path.name, base)


def _lists(data: bytes, file: str, base: int) -> Iterator[list[Event] | Damage]:
    if not data:
        return
    events = _all_of(data)
    if events is not None:
        yield events
        return
    for item in scan(data, file, base):
        yield item if isinstance(item, Damage) else [item[1]]


def _all_of(data: bytes) -> list[Event] | None:
    """The events of whole lines that all verify, None when one does not.

    Takes half the time of `scan`, since nothing is called for a line but what reads it: `verifies` stands here once more.
    """
    lines = data.split(b"\n")
    if lines.pop():
        return None
    try:
        events = [decode(line) for line in lines if line[:PREFIX] == b'{"c":"%08x",' % zlib.crc32(line[PREFIX:], BRACE)]
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None
    return events if len(events) == len(lines) else None


def _block(path: Path, offset: int, size: int) -> bytes:
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        return file.read(size)


def _salvage(line: bytes, file: str, offset: int, *, last: bool, stop: int) -> Iterator[tuple[int, Event] | Damage]:
    """What still verifies inside a line that does not verify as a whole."""
    starts = [found.start() for found in _RECORD.finditer(line)]
    at, kept = 0, 0
    for i, start in enumerate(starts):
        if start < at:
            continue
        for end in [*starts[i + 1 : i + 1 + _ENDS_TRIED], len(line)]:
            text = line[start:end].rstrip(b"\0\r")
            event = event_of(text)
            if event is None:
                continue
            if start > at:
                yield Damage(file, offset + at, start - at, _kind(line[at:start], last=False))
            elif kept:
                yield Damage(file, offset + start, 0, "glued")
            at, kept = start + len(text), kept + 1
            yield (offset + at if line[at:].strip(b"\r") else stop), event
            break
    if line[at:].strip(b"\r"):
        yield Damage(file, offset + at, len(line) - at, _kind(line[at:], last=last))


def _kind(lost: bytes, *, last: bool) -> str:
    if not lost.strip(b"\0\r"):
        return "nul"
    if last:
        return "torn"
    return "checksum" if lost.startswith(_START) and lost.endswith(b"}") else "malformed"


def clean_lines(data: bytes) -> tuple[int, list[bytes]] | None:
    """The first seq and the lines (without line feeds) of a journal in which every line verifies and the seqs have no gap.

    None when that is not so, or not sure without decoding: `scan` says more then.  Decodes nothing, so it is three times as
    fast.
    """
    if b"\\ud" in data or b"\\uD" in data:  # perhaps half of a surrogate pair, which no JSON reader takes
        return None
    lines = data.split(b"\n")
    try:
        if lines.pop() or not lines:
            return None
        first = seq = int(lines[0][PREFIX + 6 : lines[0].index(b",", PREFIX)])
        for line in lines:
            if not verifies(line) or not line.startswith(b'"seq":%d,' % seq, PREFIX):
                return None
            seq += 1
        data.decode()
    except ValueError:
        return None
    return first, lines
