"""What built-in tools may touch, and whom they tell.

The loop makes one for each turn.  All that only a kernel has comes in as a function, so the engine knows no kernel; what is
None is not there, and the tools that need it are not offered.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import uuid
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from ipyagent_sessions.memory.notes import Notes
from ipyagent_sessions.workspace.workspace import Workspace

T = TypeVar("T")


class CellError(Struct, frozen=True):
    """What a cell raised: the class name, the text, and the line of the cell where known."""

    name: str
    message: str
    line: int | None = None


class CellResult(Struct, frozen=True):
    """What running a cell gave.  `result` is the text of its last expression, `pictures` are PNG files."""

    stdout: str = ""
    stderr: str = ""
    result: str = ""
    error: CellError | None = None
    pictures: tuple[bytes, ...] = ()


class FileRead(Struct, frozen=True):
    """The model has seen (a part of) a file.  `path` is relative to the workspace, with / between folders."""

    path: str
    sha256: str


class FileChange(Struct, frozen=True):
    """A file is about to be written; told *before* it happens, so that an open call can be settled after a crash.

    `before` is the whole file as it was, None when there was none.  `call` is the id that `calling` had set.  `after_sha256`
    and `size` (bytes) are those of the new content, which `after` holds where it is at hand.
    """

    path: str
    tool: str
    call: str
    before: bytes | None
    before_sha256: str | None
    after_sha256: str
    size: int
    after: bytes | None = None


class Picture(Struct, frozen=True):
    """A PNG that a tool made, to be shown to the person."""

    png: bytes


class Started(Struct, frozen=True):
    """A process that a tool has started.  `started` is its start time in seconds since the epoch: a pid alone is used again.

    `mark` stands in the environment of the process and of all that it starts, under `processes.MARK`.  `stopped` says of one
    that has ended that it did not do so by itself.
    """

    pid: int
    started: float
    command: str
    mark: str
    stopped: bool = False


class Changed(NamedTuple):
    """A file that is not what the model has seen."""

    path: str
    how: Literal["changed", "gone"]


class InMain(Protocol):
    """Runs a function in the kernel's main thread, where the user's variables may be touched."""

    async def __call__(self, function: Callable[[], T], /) -> T: ...


def _ignore(_: Any) -> None:
    """Nobody wants to know."""


@dataclass
class Workbench:
    """`folder` is the root of the workspace.

    Callbacks may be called from any thread and return when what they were told is safe: `report` of a FileChange records the
    pre-image durably or raises, and then nothing is written.  `recall(call)` gives the FileChange that a call had reported,
    also before a crash.  `notes` is what the sessions of the store share.  `protected` are files and folders that tools may
    not touch although they may lie in the workspace: the store, above all.  `mark` names the session; every process started
    carries it.  `sees_pictures` says that the model takes pictures as results.
    """

    folder: Path
    namespace: dict[str, Any] | None = None
    in_main: InMain | None = None
    run_cell: Callable[[str], Awaitable[CellResult]] | None = None
    report: Callable[[FileChange | FileRead | Picture], None] = _ignore
    output: Callable[[str], None] = _ignore
    started: Callable[[Started], None] = _ignore
    ended: Callable[[Started], None] = _ignore
    recall: Callable[[str], FileChange | None] | None = None
    notes: Notes | None = None
    protected: tuple[Path, ...] = ()
    sees_pictures: bool = False
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    seen: dict[str, str] = field(default_factory=dict[str, str])
    """sha256 of each file as the model last saw it, by path; the loop may fill it from the log."""
    _changes: dict[str, FileChange] = field(default_factory=dict[str, FileChange])

    @functools.cached_property
    def workspace(self) -> Workspace:
        return Workspace(self.folder, self.protected)

    def saw(self, path: str, digest: str) -> None:
        """Note that the model knows `path` as it is now."""
        if self.seen.get(path) != digest:
            self.seen[path] = digest
            self.report(FileRead(path, digest))

    def will_change(self, change: FileChange) -> None:
        """Tell of a change that is about to happen.  Raises what `report` raises."""
        self.report(change)
        self._changes[change.call] = change

    def reported(self, call: str) -> FileChange | None:
        """The change that `call` has reported."""
        found = self._changes.get(call)
        return found if found is not None or self.recall is None else self.recall(call)

    def changed_since_seen(self) -> list[Changed]:
        """The files that are no longer what the model has seen."""
        found: list[Changed] = []
        for path, digest in sorted(self.seen.items()):
            now = self.workspace.sha256(path)
            if now != digest:
                found.append(Changed(path, "changed" if now else "gone"))
        return found


_call: contextvars.ContextVar[str] = contextvars.ContextVar("ipyagent_tool_call", default="")


@contextlib.contextmanager
def calling(call: str) -> Generator[None]:
    """Tools that run inside, and their `verify`, belong to the call of this id, unique in the session."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def this_call(tool: str, arguments: Mapping[str, str]) -> str:
    """The id of the present call; outside of `calling`, one made of the tool and its arguments."""
    body = "\0".join((tool, *(f"{name}={text}" for name, text in sorted(arguments.items()))))
    return _call.get() or hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
