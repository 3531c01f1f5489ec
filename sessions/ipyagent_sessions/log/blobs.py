"""Large payloads, file pre-images and artefacts, kept by their sha256.

A blob is written once, synced before the event that names it, and never changed.  Reading verifies it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from pathlib import Path
from typing import Final

from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.log.files import Disk, sync_folder

_NAME: Final = re.compile(r"[0-9a-f]{64}")
THRESHOLD: Final = 32 * 1024
"""Payload parts of more bytes than this are kept as blobs."""


class Blobs:
    """The blobs of one session; those of its ancestors are looked up through `parents`."""

    def __init__(self, folder: Path, parents: tuple[Path, ...] = ()) -> None:
        self.folder = folder
        self._parents = parents

    @staticmethod
    def name(data: bytes) -> str:
        """The name `data` has as a blob."""
        return hashlib.sha256(data).hexdigest()

    def write(self, name: str, data: bytes, disk: Disk) -> None:
        """Store `data` durably under its `name`.  Raises OSError."""
        path = self.folder / name
        with contextlib.suppress(FileNotFoundError):
            if self.name(path.read_bytes()) == name:
                return
        if not self.folder.is_dir():
            self.folder.mkdir(exist_ok=True)
            sync_folder(self.folder.parent)  # the blob is no more durable than the name of its folder
        disk.write_whole(path, data, what="blob")

    def read(self, name: str) -> bytes:
        """The blob of that name, verified.  Raises DamageError when it is missing or its bytes match in no folder."""
        if _NAME.fullmatch(name) is None:  # a name from a file must not lead out of the folder
            raise DamageError(f"{name[:80]!r} is not the name of a blob", hint="restore the session's files from a copy")
        damaged = ""
        for folder in (self.folder, *self._parents):
            try:
                data = (folder / name).read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                damaged = damaged or f"in {folder} cannot be read: {error.strerror}"
                continue
            if self.name(data) == name:
                return data
            damaged = damaged or f"in {folder} does not match its checksum"
        raise DamageError(
            f"blob {name[:12]} {damaged or f'is missing from {self.folder}'}",
            hint="restore the file from a copy, or run the activity again with ipyagent resume --redo NAME",
        )
