"""What an archive holds, and what none may hold.

    <name>.ipyagent.zip
        manifest.json                    format, who made it, the lineage, sha256 and size of every other member
        s/<session_id>/session.json      the header
        s/<session_id>/events.jsonl      its events, one a line with a checksum, as in a journal
        s/<session_id>/blobs/<sha256>    what they refer to

An archive comes from anybody.  `opened` looks at the table of contents before a byte is unpacked: a member that is not one of
these, that is no plain file, or that would unpack to more than what is sensible, refuses the archive as a whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import stat
import zipfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
from msgspec import Struct

from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import UPDATE, DamageError, NewerFormat, UsageError
from ipyagent_sessions.exchange import incoming
from ipyagent_sessions.place import ID

FORMAT: Final = 1
SUFFIX: Final = ".ipyagent.zip"
MANIFEST: Final = "manifest.json"
LARGEST: Final = 16 * 2**30
"""An archive that unpacks to more bytes is refused."""
MEMBERS: Final = 200_000
RATIO: Final = 200
SMALL: Final = 64 * 2**20
"""Below so many bytes no ratio is a bomb."""
PIECE: Final = 1 << 20
_MANIFEST_BYTES: Final = 64 * 2**20
_MEMBER: Final = re.compile(rf"s/{ID}/(session\.json|events\.jsonl|blobs/[0-9a-f]{{64}})")


class Member(Struct, frozen=True):
    """What the manifest says of a member; `size` in bytes."""

    sha256: str
    size: int


class Part(Struct, frozen=True):
    """A session of the lineage and which of its events the archive holds."""

    session: str
    first: int
    last: int


class Manifest(Struct, frozen=True):
    """`lineage` goes from the oldest ancestor to the session itself; `store` is the id of the store it was made in."""

    format: int
    session: str
    lineage: list[Part]
    members: dict[str, Member]
    made_at: str = ""
    made_by: str = ""
    store: str | None = None


class _Head(Struct):
    format: int


class Archive:
    """An opened archive whose table of contents has been checked.  Each member is verified as it is read."""

    def __init__(self, path: Path, file: zipfile.ZipFile, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._file = file

    def pieces(self, name: str) -> Iterator[bytes]:
        """A member in pieces of at most `PIECE` bytes.  Raises DamageError when it is not what the manifest says."""
        told = self.manifest.members.get(name)
        if told is None:
            raise _forged(self.path, f"{name} is missing")
        digest, size = hashlib.sha256(), 0
        try:
            with self._file.open(name) as member:
                while piece := member.read(PIECE):
                    size += len(piece)
                    digest.update(piece)
                    yield piece
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, KeyError) as error:
            raise _forged(self.path, f"{name} cannot be unpacked: {error}") from error
        if size != told.size or digest.hexdigest() != told.sha256:
            raise _forged(self.path, f"{name} does not match its checksum in {MANIFEST}")

    def read(self, name: str) -> bytes:
        """A member whole."""
        return b"".join(self.pieces(name))

    def blobs(self, session_id: str) -> list[str]:
        """The names of the blobs of a session."""
        start = f"s/{session_id}/blobs/"
        return sorted(name.removeprefix(start) for name in self.manifest.members if name.startswith(start))


@contextlib.contextmanager
def opened(path: Path) -> Generator[Archive]:
    """The archive at `path`.

    Raises UsageError for what is none, or holds what no archive may; DamageError for one that was cut or changed; NewerFormat.
    """
    packed = incoming.size_of(path)
    try:
        file = zipfile.ZipFile(path)
    except OSError as error:
        raise incoming.unreadable(path, error) from error
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"{path.name} is not an archive: {error}", hint="give the archive that `export` made") from error
    with file:
        _check(path, packed, file.infolist())
        yield Archive(path, file, _manifest(path, file))


def _check(path: Path, packed: int, members: list[zipfile.ZipInfo]) -> None:
    """Look at names, kinds and sizes; the archive has `packed` bytes.  Raises UsageError."""
    if len(members) > MEMBERS:
        raise _refused(path, f"it has {len(members)} members, more than {MEMBERS}")
    names = set[str]()
    for member in members:
        name = member.filename
        wrong = _kind(member)
        if wrong:
            raise _refused(path, f"{name[:80]!r} is {wrong}")
        if name in names:
            raise _refused(path, f"{name[:80]!r} is in it twice")
        if name != MANIFEST and _MEMBER.fullmatch(name) is None:
            raise _refused(path, f"{name[:80]!r} does not belong into it")
        names.add(name)
    size = sum(m.file_size for m in members)
    if size > LARGEST:
        raise _refused(path, f"it would unpack to {size} bytes, more than {LARGEST}")
    if size > SMALL and size > RATIO * packed:
        raise _refused(path, f"it would unpack from {packed} to {size} bytes, more than {RATIO} times as much")


def _kind(member: zipfile.ZipInfo) -> str:
    """What is wrong with a member, empty when nothing is."""
    name, mode = member.orig_filename, member.external_attr >> 16
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        return "an absolute name"
    if ".." in PurePosixPath(name.replace("\\", "/")).parts:
        return "a name that leads out of the folder"
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return "not a plain file" if not member.is_dir() else "a folder"
    if member.flag_bits & 0x1:
        return "encrypted"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "compressed in a way that `export` does not use"
    return ""


def _manifest(path: Path, file: zipfile.ZipFile) -> Manifest:
    try:
        if file.getinfo(MANIFEST).file_size > _MANIFEST_BYTES:
            raise _refused(path, f"its {MANIFEST} is too large")
        body = file.read(MANIFEST)
        head = from_json(body, _Head)
        if head.format > FORMAT:
            raise NewerFormat(
                f"{path.name} has format {head.format}, this version reads up to {FORMAT}",
                hint=UPDATE,
            )
        manifest = from_json(body, Manifest)
    except KeyError:
        raise UsageError(f"{path.name} has no {MANIFEST}", hint="give the archive that `export` made") from None
    except (msgspec.DecodeError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _forged(path, f"its {MANIFEST} cannot be read: {error}") from error
    held = {member.filename for member in file.infolist()} - {MANIFEST}
    if held != manifest.members.keys():
        odd = min(held ^ manifest.members.keys())
        raise _forged(path, f"{odd} is {'not in its manifest' if odd in held else 'missing'}")
    return manifest


def _refused(path: Path, what: str) -> UsageError:
    return UsageError(f"{path.name} is refused: {what}", hint="it was not made by `export`; nothing was unpacked")


def _forged(path: Path, what: str) -> DamageError:
    return DamageError(f"{path.name} was cut or changed: {what}", hint="export it again; nothing was imported")
