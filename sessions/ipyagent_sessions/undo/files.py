"""Files brought back to what they held before a task wrote them (R132, R172), never over a later edit by a person.

A write can be undone while its file holds what that write left: that is seen by sha256.  Several writes of a file are undone
from the newest to the oldest, in memory; then the file is replaced once, atomically, in the confines of a workspace (no path
and no link leads out of it).  What is replaced is kept as a blob first, and the event follows the file, so a crash in between
leaves a file that is back already: doing it again only logs that."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import IpyagentError, PersistenceError, UsageError
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.blobs import Blobs
from ipyagent_sessions.session import Session
from ipyagent_sessions.undo import merging
from ipyagent_sessions.undo.ledger import Effect
from ipyagent_sessions.workspace.workspace import Workspace

_SHA: Final = "sha256:"


class Step(Struct):
    """What happens to one file.  `how` is restore, remove, merge, already (it holds that already), or refused, and then `why`
    and, for texts, `difference` say what stands against it.  `undoes` are the seqs of the writes, newest first."""

    path: str
    how: Literal["restore", "remove", "merge", "already", "refused"]
    undoes: list[int]
    why: str = ""
    difference: str = ""
    now: bytes | None = None
    then: bytes | None = None


class _Refused(Exception):
    def __init__(self, why: str, difference: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.difference = difference


def plan(
    session: Session,
    workspace: Workspace,
    effects: Sequence[Effect],
    after: int,
    *,
    paths: Sequence[str] = (),
    merge: bool = False,
) -> list[Step]:
    """What bringing the files back to how they were after event `after` would do, the newest write first; nothing is changed.

    Only writes whose pre-image is known count.  Raises UsageError for a path that none of them wrote.
    """
    writes: dict[str, list[Effect]] = {}
    for effect in effects:
        if effect.what == "file" and effect.restorable and effect.state != "rolled back" and effect.seq > after:
            writes.setdefault(effect.name, []).append(effect)
    if paths:
        wanted = {_normal(workspace, path) for path in paths}
        writes = {path: found for path, found in writes.items() if _normal(workspace, path) in wanted}
        missing = wanted - {_normal(workspace, path) for path in writes}
        if missing:
            raise UsageError(f"no write of {min(missing)} can be rolled back", hint="ipyagent effects lists what can")
    steps = [_step(session, workspace, path, found, merge=merge) for path, found in writes.items()]
    return sorted(steps, key=lambda step: -step.undoes[0])


def _normal(workspace: Workspace, path: str) -> str:
    try:
        return workspace.normal(path)
    except UsageError:
        return path


def _step(session: Session, workspace: Workspace, path: str, writes: list[Effect], *, merge: bool) -> Step:
    undoes = [write.seq for write in reversed(writes)]
    try:
        now = workspace.read_if_there(path)
        if checksum(now) == writes[0].before_checksum:
            return Step(path, "already", undoes, now=now, then=now)
        then, merged = now, False
        for number in range(len(writes) - 1, -1, -1):
            then, how = _undone(session, writes, number, then, merge=merge)
            merged = merged or how
    except _Refused as refused:
        return Step(path, "refused", undoes, refused.why, refused.difference)
    except IpyagentError as error:
        return Step(path, "refused", undoes, error.message)
    return Step(path, "merge" if merged else "remove" if then is None else "restore", undoes, now=now, then=then)


def _undone(
    session: Session, writes: list[Effect], number: int, now: bytes | None, *, merge: bool
) -> tuple[bytes | None, bool]:
    """What a file that holds `now` holds without a write of it, and whether that took a merge.  Raises _Refused."""
    write = writes[number]
    if checksum(now) == write.before_checksum:  # it did not happen, or is undone
        return now, False
    before = None if write.before is None else session.blobs.read(write.before)
    if checksum(now) == write.checksum:
        return before, False
    written = _written(session, writes, number)
    if now is None:
        raise _Refused("somebody removed it since")
    if before is None:
        raise _Refused("the task made it, and somebody changed it since", merging.difference(written, now))
    if not merge:
        raise _Refused("somebody changed it since", merging.difference(written, now))
    if written is None:
        raise _Refused("somebody changed it since, and what the task wrote is not kept: it cannot be merged")
    return merging.three_way(written, now, before), True


def _written(session: Session, writes: list[Effect], number: int) -> bytes | None:
    """What a write left, if that is kept: with it, or as what the next write found."""
    write = writes[number]
    name = write.after
    if name is None and number + 1 < len(writes) and writes[number + 1].before_checksum == write.checksum:
        name = writes[number + 1].before
    return None if name is None else session.blobs.read(name)


def checksum(data: bytes | None) -> str | None:
    """What events say of a file that holds `data`; None when there is none."""
    return None if data is None else _SHA + hashlib.sha256(data).hexdigest()


def bring_back(session: Session, workspace: Workspace, step: Step, appender: Appender, *, actor: str = ev.ENGINE) -> None:
    """Do a step that is not refused, and log it; nothing is made durable but the blob of what is replaced.

    Raises UsageError when the file is no longer what the plan saw, PersistenceError when the disk refuses; then it is as it
    was.
    """
    body = p.FileRolledBack(step.path, step.undoes, checksum(step.then), None if step.then is None else len(step.then))
    blobs: dict[str, bytes] = {}
    if step.how != "already":
        body.merged, body.before_checksum = step.how == "merge", checksum(step.now)
        if step.now is not None:
            body.before = Blobs.name(step.now)
            blobs[body.before] = step.now
            _keep(session, body.before, step.now, appender)
        restore(workspace, step)
    appender.disk.seam("after file rolled back")
    system = appender.state.system_state
    appender.emit("FileRolledBack", body, task_id=system.task_id, actor=actor, ignorable=True, blobs=blobs)


def _keep(session: Session, name: str, data: bytes, appender: Appender) -> None:
    """Store what is to be replaced: before that, and not with the event, which follows it."""
    try:
        session.blobs.write(name, data, appender.disk)
    except OSError as error:
        raise PersistenceError(
            f"what a file holds could not be kept: {error.strerror or error}", hint="free some space; it was not rolled back"
        ) from error


def restore(workspace: Workspace, step: Step) -> None:
    """Make the file what the step says.  Raises UsageError when it is no longer what the plan saw."""
    if step.then is not None:
        workspace.write(step.path, step.then, before=step.now)
    elif step.now is not None:
        workspace.remove(step.path, before=step.now)
