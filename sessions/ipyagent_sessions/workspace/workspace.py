"""The workspace: a folder that no path given by a model leaves.

`names` judges the text of a path, `folder` walks it without following a link.  What a model may start (`run_shell`,
`run_python`) is not confined by this: docs/tools.md says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.workspace import folder as folders
from ipyagent_sessions.workspace import names
from ipyagent_sessions.workspace.folder import Folder
from ipyagent_sessions.workspace.protected import Protected, permits

BIGGEST: Final = 64 * 2**20
"""Bytes of a file that is read whole: a pre-image is kept in the log."""
SKIPPED: Final = frozenset(
    {".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__", ".ipynb_checkpoints", ".mypy_cache"}
)
"""Folders that are named but not looked into, unless they are asked for."""
_CHUNK: Final = 2**20
_TEMPORARY: Final = ".ipyagent-"


class Entry(NamedTuple):
    """Something in the workspace.  `size` is bytes, 0 for what is no file; `closed` says that a folder was not looked into."""

    path: str
    kind: Literal["file", "folder", "link", "other"]
    size: int = 0
    closed: bool = False


class Workspace:
    """`root` itself may be reached by links; below it none is followed.  `protected` files and folders are as if outside.

    Paths are relative to the root with / between folders.  All methods raise UsageError, with a text for the model, for a path
    that leaves the workspace and for what cannot be done.
    """

    def __init__(self, root: Path, protected: tuple[Path, ...] = ()) -> None:
        self.root = root.resolve()
        self._protected = Protected(protected)
        self._writing = threading.Lock()

    def normal(self, path: str) -> str:
        """The one way to write `path`; "." for the root."""
        return "/".join(names.parts(path, self.root)) or "."

    @contextlib.contextmanager
    def folder(self, path: str, *, create: bool = False) -> Generator[Folder]:
        """The open folder `path`; with `create` it and those above it are made."""
        try:
            here = Folder(os.fspath(self.root), by_descriptor=folders.BY_DESCRIPTOR)
        except OSError as error:
            raise UsageError(f"the workspace {self.root} cannot be opened: {error.strerror}") from error
        try:
            for name in names.parts(path, self.root):
                self._check(here, name)
                if create and here.status(name) is None:
                    here.make(name)
                below = here.enter(name)
                here.__exit__()
                here = below
                if self._protected.holds(here.identity()):
                    raise _closed(name)
            yield here
        finally:
            here.__exit__()

    @contextlib.contextmanager
    def _place(self, path: str, *, create: bool = False) -> Generator[tuple[Folder, str]]:
        """The folder that `path` lies in, and its name there."""
        *above, name = names.parts(path, self.root) or ("",)
        if not name:
            raise UsageError("the workspace itself is no file")
        with self.folder("/".join(above), create=create) as here:
            self._check(here, name)
            yield here, name

    def _check(self, here: Folder, name: str) -> None:
        """Raise UsageError when `name` is another spelling, or protected."""
        here.check_spelling(name)
        found = here.status(name)
        if self._protected.covers(here.identity(), name):
            raise _closed(name)
        if found is not None and self._protected.holds((found.st_dev, found.st_ino)):
            raise _closed(name)

    def open(self, path: str) -> int:
        """A descriptor of a regular file, to be read and closed."""
        with self._place(path) as (here, name):
            return here.open(name)

    def read(self, path: str, biggest: int = BIGGEST) -> bytes:
        """The whole file, which has at most `biggest` bytes."""
        with os.fdopen(self.open(path), "rb") as file:
            data = file.read(biggest + 1)
        if len(data) > biggest:
            raise UsageError(f"{path} has more than {biggest:,} bytes", hint="look at a part of it with query or run_python")
        return data

    def read_if_there(self, path: str) -> bytes | None:
        """The whole file, None when there is nothing of that name."""
        try:
            return self.read(path)
        except folders.Missing:
            return None

    def size(self, path: str) -> int | None:
        """The bytes of a regular file; None for a folder and for the root."""
        if self.normal(path) == ".":
            return None
        with self._place(path) as (here, name):
            found = here.status(name)
        return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else None

    def sha256(self, path: str) -> str | None:
        """The digest of a file, of any size; None when it cannot be read."""
        try:
            with os.fdopen(self.open(path), "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except (UsageError, OSError):
            return None

    def check_writable(self, path: str) -> None:
        """Raise UsageError when no tool may write a file of that name."""
        if permits(self.normal(path).rpartition("/")[2]):
            raise UsageError(f"{path} would give permissions and is not written by tools", hint="the user has to write it")

    def write(self, path: str, data: bytes, *, before: bytes | None) -> None:
        """Make `path` hold `data`, completely or not at all, with the permissions it had; folders above it are made.

        `before` is what the caller believes it to hold; raises UsageError when that is no longer so, and for a file that would
        give permissions.
        """
        self.check_writable(path)
        temporary = f"{_TEMPORARY}{hashlib.sha256(path.encode() + data).hexdigest()[:16]}.tmp"
        try:
            with self._writing, self._place(path, create=True) as (here, name):
                found = here.status(name)
                if found is not None and not stat.S_ISREG(found.st_mode):
                    here.open(name)  # says what it is
                here.create(temporary, data, None if found is None else stat.S_IMODE(found.st_mode))
                try:
                    if self._now(here, name) != before:
                        raise UsageError(f"{path} was changed by somebody else meanwhile", hint="read it again")
                    here.rename(temporary, name)
                except BaseException:
                    here.remove(temporary)
                    raise
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from error

    def remove(self, path: str, *, before: bytes) -> None:
        """Remove the file `path`, which holds `before`; raises UsageError when that is no longer so."""
        self.check_writable(path)
        try:
            with self._writing, self._place(path) as (here, name):
                if self._now(here, name) != before:
                    raise UsageError(f"{path} was changed by somebody else meanwhile", hint="read it again")
                here.remove(name)
                here.sync()
        except OSError as error:
            raise UsageError(f"{path} cannot be removed: {error.strerror}") from error

    def walk(self, path: str = ".", *, depth: int | None = None) -> Iterator[Entry]:
        """What is below `path`, sorted, folders before what is in them; links are named and not followed.

        `depth` is how many levels are shown.  Folders of `SKIPPED` and those of ipyagent are named and not looked into.
        """
        with self.folder(path) as here:
            prefix = "" if self.normal(path) == "." else f"{self.normal(path)}/"
            yield from self._below(here, prefix, depth)

    def _below(self, here: Folder, prefix: str, depth: int | None) -> Iterator[Entry]:
        for name in here.names():
            found = here.status(name)
            if found is None or (name.startswith(_TEMPORARY) and name.endswith(".tmp")):
                continue
            shown = f"{prefix}{name}"
            if folders.is_link(found):
                yield Entry(shown, "link")
            elif stat.S_ISDIR(found.st_mode):
                closed = name in SKIPPED or self._protected.holds((found.st_dev, found.st_ino))
                yield Entry(shown, "folder", closed=closed)
                if not closed and (depth is None or depth > 1):
                    with contextlib.suppress(UsageError), here.enter(name) as below:
                        yield from self._below(below, f"{shown}/", None if depth is None else depth - 1)
            else:
                kind: Literal["file", "other"] = "file" if stat.S_ISREG(found.st_mode) else "other"
                yield Entry(shown, kind, found.st_size)

    def _now(self, here: Folder, name: str) -> bytes | None:
        """What `name` holds, None when there is nothing."""
        if here.status(name) is None:
            return None
        with os.fdopen(here.open(name), "rb") as file:
            return file.read()


def _closed(name: str) -> UsageError:
    return UsageError(f"{name} belongs to ipyagent and is not open to tools")
