"""Write, sync, rename: the few operations whose order makes a promise.

Each dangerous step has a name.  `Disk` calls `seam(name)` before and after it; a test passes a `Disk` whose seam raises, or
kills the process, at a chosen name (`testing.FaultyDisk`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

SEAMS: Final = (
    "before journal write",
    "after journal write",
    "before journal sync",
    "after journal sync",
    "before blob rename",
    "after blob rename",
    "before seal rename",
    "after seal rename",
    "before checkpoint rename",
    "after checkpoint rename",
    "before header rename",
    "after header rename",
    "before control logged",
    "after control logged",
    "before epoch created",
    "after epoch created",
    "before tail rename",
    "after tail rename",
    "before control rename",
    "after control rename",
)


SIDE_SEAMS: Final = (
    "before export rename",
    "after export rename",
    "before import rename",
    "after import rename",
    "before delete rename",
    "after delete rename",
    "before memory rename",
    "after memory rename",
    "before cache rename",
    "after cache rename",
    "before backup rename",
    "after backup rename",
    "before upgrade rename",
    "after upgrade rename",
    "after file rolled back",
)
"""Those that no running task passes."""


class Disk:
    """The real disk."""

    def seam(self, name: str) -> None:
        """Called at each name of `SEAMS`."""

    def append(self, fd: int, data: bytes) -> None:
        """Write all of `data` at the end of `fd`.  Raises OSError; a part may have been written then."""
        self.seam("before journal write")
        written = os.write(fd, data)
        while written < len(data):
            written += os.write(fd, memoryview(data)[written:])
        self.seam("after journal write")

    def sync(self, fd: int) -> None:
        """Put what was written to `fd` on the medium."""
        self.seam("before journal sync")
        sync_file(fd)
        self.seam("after journal sync")

    def write_whole(self, path: Path, data: bytes, *, what: str) -> None:
        """Make `path` hold `data`, completely or not at all: temporary file, sync, rename, sync of the folder."""
        temporary = temporary_beside(path)
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                sync_file(file.fileno())
            self.publish(temporary, path, what=what)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            raise

    def publish(self, temporary: Path, path: Path, *, what: str) -> None:
        """Rename a synced temporary file to its place and sync the folder."""
        self.seam(f"before {what} rename")
        os.replace(temporary, path)
        sync_folder(path.parent)
        self.seam(f"after {what} rename")

    def replace(self, path: Path, data: bytes) -> None:
        """Make `path` hold `data` atomically but without a sync: for files that are not history."""
        temporary = temporary_beside(path)
        try:
            with open(temporary, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


def sync_file(fd: int) -> None:
    """fdatasync; fsync where there is none; F_FULLFSYNC on macOS, where fsync stops at the drive's cache."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def create_durable(path: Path, pieces: Iterable[bytes]) -> None:
    """A new file of these pieces whose content survives; its name does once the folder is synced.  Raises FileExistsError."""
    with open(path, "xb") as file:
        file.writelines(pieces)
        file.flush()
        sync_file(file.fileno())


def make_folder(path: Path) -> None:
    """Make a folder whose name survives: what is put into it may be acknowledged afterwards."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make names created or renamed in a folder durable.  Windows has no such call and needs none."""
    if sys.platform == "win32":
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def temporary_beside(path: Path) -> Path:
    """A name beside `path` that no other process or thread uses, and that no reader's pattern matches."""
    return path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
