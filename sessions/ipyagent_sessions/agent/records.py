"""What the tools of a turn read, write and start, as events: for the notice after a stop, the provenance of files, and
leftovers.

    FileRead          the model has seen a file          path, checksum
    FileWritten       a file is about to be changed      path, checksum, before (blob of what it held), tool
    PictureMade       a tool made a picture              blob, media_type
    ProcessStarted, ProcessEnded                         pid, started, command, mark

All but FileWritten are ignorable: no state is folded from them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.agent import abandoned
from ipyagent_sessions.agent.settings import Settings
from ipyagent_sessions.agent.surroundings import Surroundings
from ipyagent_sessions.agent.tools import leftovers
from ipyagent_sessions.agent.tools.workbench import FileChange, FileRead, Picture, Started, Workbench
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.log.blobs import Blobs
from ipyagent_sessions.memory.notes import Notes
from ipyagent_sessions.run.inside import current, progress
from ipyagent_sessions.run.task import TaskRun
from ipyagent_sessions.workspace.protected import permissions

_SHA: Final = "sha256:"
_LARGEST_AFTER: Final = 2**20
"""Bytes of a text that is kept as it was written, beside what it replaced."""


def _folder(wanted: str, folder: Path, own: Path | None) -> Path:
    """The folder that the tools work in.  Raises UsageError when the settings would lead out of an isolated fork's own."""
    found = ((own or folder) / wanted).resolve()
    if own is not None and not found.is_relative_to(own.resolve()):
        raise UsageError(f"tools.workspace {wanted} leads out of the fork's own workspace", hint="fork without --isolate")
    return found


class Records:
    """The workbench of one execution of a turn, wired to its log.

    From here on nothing that the settings call secret is stored: payloads and blobs of this execution are scrubbed.
    """

    def __init__(self, run: TaskRun, place: Surroundings, settings: Settings) -> None:
        self._run = run
        self._show = place.show
        own = run.session.workspace
        self._cwd = Path.cwd() if own is None else own
        secrets = settings.known_secrets()
        run.appender.scrub = lambda body: secrets.scrub(body.decode("utf-8", "surrogatepass")).encode("utf-8", "surrogatepass")
        self.scrub = secrets.scrub
        self.bench = Workbench(
            _folder(settings.tools.workspace, place.folder, own),
            namespace=place.namespace,
            in_main=place.in_main,
            run_cell=place.run_cell,
            report=self._report,
            output=lambda text: progress(0, None, text),
            started=lambda process: self._process("ProcessStarted", process),
            ended=lambda process: self._process("ProcessEnded", process),
            recall=self._recall,
            notes=Notes(run.session.place.memory, by=run.session.id, scrub=secrets.scrub),
            protected=permissions(run.session.place.root, place.folder, *((own,) if own else ())),
            mark=run.session.id,
        )
        self.bench.seen.update(self._read_before())

    def changed(self) -> list[str]:
        """The files that are no longer what the model has seen, one line each."""
        return [f"{found.path} is {found.how} since you read it" for found in self.bench.changed_since_seen()]

    def stale(self) -> list[str]:
        """Of these, the ones that somebody else has changed: they do not hold what this session itself has left there."""
        changed = self.bench.changed_since_seen()
        left = self._left() if changed else {}
        others = [f for f in changed if f.path not in left or left[f.path] != self.bench.workspace.sha256(f.path)]
        return [f"{found.path} is {found.how} since the agent read it" for found in others]

    def _left(self) -> dict[str, str | None]:
        """sha256 by path of what tools and checked sections left in a file, None where they removed it."""
        left: dict[str, str | None] = {}
        for event in self._run.session.events():
            if event.event_type == "FileWritten" or (event.event_type == "FileRolledBack" and event.actor == ev.ENGINE):
                body = msgspec.json.decode(event.payload)
                checksum = body.get("checksum")
                left[self._in_bench(body["path"])] = checksum.removeprefix(_SHA) if checksum else None
        return left

    def _in_bench(self, path: str) -> str:
        """A path of the log, as the tools have it."""
        return Path(os.path.relpath(self._cwd / path, self.bench.folder)).as_posix()

    def end_leftovers(self) -> list[str]:
        """End what tools of earlier executions started and nobody ended, as after a kill -9 of the kernel; gives one line for
        each, saying so of one that could not be ended."""
        found = leftovers.living(abandoned.unended(self._run.session.events()), self._run.session.id)
        still = leftovers.stop(found)
        for process in found:
            if process not in still:
                self._process("ProcessEnded", msgspec.structs.replace(process, stopped=True))
        return abandoned.told(found, still)

    def _report(self, what: FileChange | FileRead | Picture) -> None:
        """Log what a tool tells, durably for a change: it happens only after this returned.  Raises PersistenceError."""
        if isinstance(what, FileRead):
            self._emit("FileRead", {"path": what.path, "checksum": _SHA + what.sha256})
        elif isinstance(what, Picture):
            blob = Blobs.name(what.png)
            self._emit("PictureMade", {"blob": blob, "media_type": "image/png"}, blobs={blob: what.png})
            if self._show is not None:
                self._show(what.png)
        else:
            self._written(what)

    def _written(self, change: FileChange) -> None:
        before = None if change.before is None else Blobs.name(change.before)
        body = p.FileWritten(
            os.path.relpath(self.bench.folder / change.path, self._cwd),
            _SHA + change.after_sha256,
            change.size,
            before=before,
            before_checksum=None if change.before_sha256 is None else _SHA + change.before_sha256,
            tool=change.tool,
            call=change.call,
        )
        kept = {} if change.before is None or before is None else {before: change.before}
        if change.after is not None and self._for_merges(change.after):
            body.after = Blobs.name(change.after)
            kept[body.after] = change.after
        self._emit("FileWritten", body, ignorable=False, blobs=kept)
        self._run.appender.barrier()

    def _for_merges(self, data: bytes) -> bool:
        """Whether what a file is to hold is kept: a text that a three-way merge could need, with nothing secret in it."""
        if len(data) > _LARGEST_AFTER or b"\0" in data:
            return False
        text = data.decode("utf-8", "surrogateescape")
        return self.scrub(text) == text

    def _process(self, event_type: str, process: Started) -> None:
        self._emit(event_type, msgspec.to_builtins(process))
        if event_type == "ProcessStarted":
            self._run.appender.barrier()

    def _emit(self, event_type: str, body: Any, *, ignorable: bool = True, blobs: dict[str, bytes] | None = None) -> None:
        """Log an event of the call that runs here; from any thread.  It is no result of that call, so it has its start as its
        parent and not its id."""
        here = current()
        self._run.appender.emit(
            event_type,
            body,
            task_id=self._run.task_id,
            parent=here.started_seq if here is not None else None,
            ignorable=ignorable,
            blobs=blobs or None,
        )

    def _recall(self, call: str) -> FileChange | None:
        """The change that a call had reported before this execution."""
        found = None
        for body in self._bodies("FileWritten"):
            if body.get("call") == call:
                found = body
        if found is None:
            return None
        name = found.get("before")
        before = self._run.session.blobs.read(name) if name else None
        return FileChange(
            self._in_bench(found["path"]),
            found.get("tool", ""),
            call,
            before,
            (found.get("before_checksum") or "").removeprefix(_SHA) or None,
            found["checksum"].removeprefix(_SHA),
            found.get("size") or 0,
        )

    def _read_before(self) -> dict[str, str]:
        """sha256 by path of what the model has seen in this conversation."""
        return {body["path"]: body["checksum"].removeprefix(_SHA) for body in self._bodies("FileRead")}

    def _bodies(self, event_type: str) -> Iterator[dict[str, Any]]:
        for event in self._run.session.events():
            if event.event_type == event_type:
                yield msgspec.json.decode(event.payload)
