"""`rollback`: files brought back to what they held, first as a plan, then for real."""

from __future__ import annotations

import argparse
from typing import Final

from ipyagent_sessions.commands import outside
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.commands.look import at_of
from ipyagent_sessions.effects import rollback
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.session import Session
from ipyagent_sessions.textsafe import plain
from ipyagent_sessions.undo import files
from ipyagent_sessions.undo.files import Step
from ipyagent_sessions.views.shown import Shown

_DONE: Final = {"restore": "restored", "remove": "removed", "merge": "merged", "already": "was back already"}
_WOULD: Final = {
    "restore": "would be restored",
    "remove": "would be removed: it was not there before",
    "merge": "would be merged: the edits made since stay",
    "already": "is back already",
    "refused": "is not touched",
}


def roll_back(door: Door, options: argparse.Namespace) -> Shown:
    """Say what bringing the session's files back would do; with `--yes` do it."""
    session = door.session(options.id)
    session.refuse_foreign()
    after = _point(session, at_of(session, options.to))
    workspace = rollback.workspace_of(session, rollback.folder_of(session, door.folder))
    effects = outside.of(session)
    steps = files.plan(session, workspace, effects, after, paths=options.file, merge=options.merge)
    refused = [step for step in steps if step.how == "refused"]
    if options.yes:
        rollback.carry_out(session, workspace, steps, actor=door.actor)
    words = _DONE if options.yes else _WOULD
    told = [f"files of {session.id} in {workspace.root}, as they were after event {after}:"] if steps else []
    for step in steps:
        told.append(f"  {plain(step.path, 160)} {words[step.how]}{': ' + step.why if step.why else ''}")
        told += [f"    {line}" for line in step.difference.splitlines()]
    if not steps:
        told.append(f"no file that {session.id} wrote after event {after} can be rolled back")
    stays = [e for e in effects if e.what == "file" and not e.restorable and e.seq > after]
    if stays and not options.file:
        names = ", ".join(sorted({plain(e.name, 80) for e in stays})[:5])
        told.append(f"stays as it is, since what it held before is not known: {names}")
    if steps and not options.yes:
        told.append(_next(door, session, options, refused))
    data = {
        "session_id": session.id,
        "to": after,
        "folder": str(workspace.root),
        "done": bool(options.yes and steps),
        "files": [{"path": s.path, "how": s.how, "undoes": s.undoes, "why": s.why, "difference": s.difference} for s in steps],
    }
    return Shown("\n".join(told), None, data)


def _point(session: Session, wanted: int | None) -> int:
    """The event to go back to: by default the one before the newest task.  Raises UsageError for one of an ancestor."""
    earliest = session.first - 1
    if wanted is None:
        return max(earliest, session.state().system_state.queued_seq)
    if wanted < earliest:
        raise UsageError(
            f"event {wanted} is of the session that {session.id} was forked from",
            hint=f"its own begin after {earliest}; what was written before is rolled back there",
        )
    return wanted


def _next(door: Door, session: Session, options: argparse.Namespace, refused: list[Step]) -> str:
    command = f"{door.prefix} rollback {session.id}" + (f" --to {options.to}" if options.to else "")
    if not refused:
        return f"nothing was changed yet; do it with: {command} --yes"
    merge = "" if options.merge else f", keep the later edits with {command} --merge,"
    return (
        f"nothing is changed while one is refused: name the others with {command} --file PATH{merge} or put it right by hand"
    )
