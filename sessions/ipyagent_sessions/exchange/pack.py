"""A session, the part of its ancestors that it needs, and their blobs, into one archive."""

from __future__ import annotations

import contextlib
import hashlib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.events import Stamper
from ipyagent_sessions.exchange.archive import FORMAT, MANIFEST, PIECE, Manifest, Member, Part
from ipyagent_sessions.log.files import sync_file, temporary_beside
from ipyagent_sessions.log.format import line_of
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.place import VERSION
from ipyagent_sessions.session import Session
from ipyagent_sessions.verify.blobs import folders, named_by

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def export(session: Session, path: Path) -> Manifest:
    """Write the archive of `session`, as it is now, to `path`; it appears complete or not at all.

    Raises DamageError when events or blobs of it are missing, OSError.
    """
    temporary = temporary_beside(path)
    members: dict[str, Member] = {}
    lineage: list[Part] = []
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file:
            for member, last in _lineage(session):
                lineage.append(Part(member.id, member.first, last))
                _pack(file, member, last, members)
            manifest = Manifest(
                FORMAT,
                session.id,
                lineage,
                members,
                Stamper()(session.place.clock.now()),
                VERSION,
                session.header.store,
            )
            _write(file, MANIFEST, [msgspec.json.encode(manifest)], {})
        with open(temporary, "rb+") as written:
            sync_file(written.fileno())
        session.place.disk.publish(temporary, path, what="export")
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    return manifest


def _lineage(session: Session) -> list[tuple[Session, int]]:
    """The session and its ancestors with the last seq that counts of each, the oldest first."""
    found = [(session, session.last_seq())]
    while (parent := found[0][0].parent) is not None and (point := found[0][0].header.parent) is not None:
        found.insert(0, (parent, point.seq))
    return found


def _pack(file: zipfile.ZipFile, member: Session, last: int, members: dict[str, Member]) -> None:
    named: dict[str, int] = {}
    _write(file, f"s/{member.id}/session.json", [msgspec.json.encode(member.header)], members)
    _write(file, f"s/{member.id}/events.jsonl", _lines(member, last, named), members)
    for name, seq in sorted(named.items()):
        path = next((folder / name for folder in folders(member) if (folder / name).is_file()), None)
        if path is None:
            raise DamageError(
                f"session {member.id}: the blob {name[:12]} of event {seq} is missing",
                hint="ipyagent verify says what else is; restore it from a copy",
            )
        _write(file, f"s/{member.id}/blobs/{name}", _pieces(path), members)
        if members[f"s/{member.id}/blobs/{name}"].sha256 != name:
            raise DamageError(f"session {member.id}: the blob {name[:12]} has changed", hint="restore it from a copy")


def _lines(member: Session, last: int, named: dict[str, int]) -> Iterator[bytes]:
    reader = Reader(member.layout, member.first)
    for event in reader.events(until=last):
        for name in named_by(event):
            named.setdefault(name, event.seq)
        yield line_of(event)
    if reader.missing:
        low, high = reader.missing[0]
        raise DamageError(
            f"session {member.id}: events {low} to {high} are damaged or missing",
            hint="ipyagent verify says where; restore the file from a copy, or fork before them and export the fork",
        )


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            yield piece


def _write(file: zipfile.ZipFile, name: str, pieces: Iterable[bytes], members: dict[str, Member]) -> None:
    """Add a member and note its checksum.  Times are left out, so that the same session gives the same bytes."""
    digest, size = hashlib.sha256(), 0
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o600 << 16
    with file.open(info, "w", force_zip64=True) as member:
        for piece in pieces:
            member.write(piece)
            digest.update(piece)
            size += len(piece)
    members[name] = Member(digest.hexdigest(), size)
