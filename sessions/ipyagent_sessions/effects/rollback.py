"""Files rolled back by a door, while nobody works in the session: `undo.files` says what can be, and does it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ipyagent_sessions.errors import LeaseHeld, UsageError
from ipyagent_sessions.log import live
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.run import control
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.undo.files import Step, bring_back
from ipyagent_sessions.workspace.protected import permissions
from ipyagent_sessions.workspace.workspace import Workspace


def folder_of(session: Session, otherwise: Path) -> Path:
    """The folder that the paths of a session's files start from: its own workspace, the working folder in which its newest
    task began, or `otherwise` when that is not known or is no more."""
    if session.workspace is not None:
        return session.workspace
    name = session.state().system_state.environment_blob
    if name is not None and session.native:
        recorded = msgspec.json.decode(session.blobs.read(name)).get("cwd")
        if isinstance(recorded, str) and Path(recorded).is_dir():
            return Path(recorded)
    return otherwise


def workspace_of(session: Session, folder: Path) -> Workspace:
    """`folder` with what no tool may touch, and no roll back either."""
    return Workspace(folder, permissions(session.place.root, folder))


def carry_out(session: Session, workspace: Workspace, steps: Sequence[Step], *, actor: str) -> None:
    """Do what `plan` said, and log each file that is back.

    Raises LeaseHeld while somebody works in the session, UsageError when a file is refused (then nothing is changed) or was
    changed meanwhile (then the files before it are back, and the log says so).
    """
    refused = [step.path for step in steps if step.how == "refused"]
    if refused:
        raise UsageError(
            f"{', '.join(refused[:5])} cannot be rolled back, and nothing was changed", hint="leave it out with --file"
        )
    if session.held():
        raise LeaseHeld(f"a task runs in session {session.id}", hint=f"pause it first: ipyagent pause {session.id}")
    appender = session.append(this_process(by=actor))
    try:
        control.record_loss(appender)
        for step in steps:
            bring_back(session, workspace, step, appender, actor=actor)
            appender.barrier()
        live.write_summary(session.layout, summarise(session.id, appender.state), appender.disk)
    finally:
        appender.close()
