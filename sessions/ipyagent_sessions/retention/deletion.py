"""Deleting a session, after its forks have got what they share with it.

A fork continues its parent's log.  Before the parent goes, the fork gets a copy of the parent's own part (segments of epoch 0
and the blobs that they name), and its header takes the parent's parent for its own.  The header is replaced last: a crash
before that leaves a fork that still reads from its parent, and copies that nobody counts.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import msgspec
from msgspec import Struct

from ipyagent_sessions.errors import DamageError, IpyagentError, NewerFormat, UsageError
from ipyagent_sessions.log import lease, sealing
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.place import is_id
from ipyagent_sessions.retention import workspaces
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.verify.blobs import named_by


class Loss(Struct):
    """What deleting a session would lose, and who depends on it.  `unclear` are sessions that may be forks of it and cannot be
    read.  `problem` says why it cannot be done, if so."""

    session_id: str
    title: str = ""
    state: str = ""
    events: int = 0
    tasks: int = 0
    needs_you: int = 0
    cost_usd: float = 0.0
    bytes: int = 0
    forks: list[str] = []
    workspace: str = ""
    workspace_bytes: int = 0
    unclear: list[str] = []
    problem: str = ""


def loss(store: Store, session: Session) -> Loss:
    """What would be lost.  A damaged session can be deleted too, unless forks need what is damaged."""
    size = sum(p.stat().st_size for p in session.layout.root.rglob("*") if p.is_file())
    found = Loss(session.id, bytes=size, forks=store.children(session.id))
    try:
        summary = session.summary()
        found.title, found.tasks, found.needs_you = summary.title, summary.tasks, summary.needs_you
        found.cost_usd, found.state = summary.cost_usd, session.effective_state(summary)
        found.events = session.last_seq() - session.first + 1
    except IpyagentError as error:
        found.state = f"damaged: {error.message}"
    if (own := _only_its_own(store, session)) is not None:
        found.workspace, found.workspace_bytes = str(own), workspaces.size_of(own)
    held = [s for s in (session.id, *found.forks) if store.session(s).held()]
    if held:
        found.problem = f"{', '.join(held)} {'is' if len(held) == 1 else 'are'} held: a task runs there"
    found.unclear = [other for other in store.unreadable() if other != session.id and _may_be_fork(store.session(other))]
    if found.unclear:
        told = ", ".join(found.unclear)
        found.problem = f"whether {told} needs it is not known: ipyagent verify {found.unclear[0]} says why it cannot be read"
    return found


def delete(store: Store, session: Session) -> Loss:
    """Delete a session.

    Raises LeaseHeld when it or a fork of it is held, DamageError when a fork needs events of it that are damaged or may be one
    that cannot be read; it is still there then, and so is every fork.
    """
    found = loss(store, session)
    if found.unclear:
        raise DamageError(found.problem, hint="mend that session, or delete it first; nothing was deleted")
    with lease.held(session.layout, "delete", now=store.clock.now(), disk=store.disk):
        for child_id in store.children(session.id):
            child = store.session(child_id)
            with lease.held(child.layout, "delete", now=store.clock.now(), disk=store.disk):
                hand_over(session, child)
        if store.children(session.id):
            raise UsageError(f"session {session.id} was forked while it was being deleted", hint="delete it once more")
        hidden = store.sessions_folder / f".{session.id}"
        shutil.rmtree(hidden, ignore_errors=True)
        store.disk.publish(session.layout.root, hidden, what="delete")
    if found.workspace:
        workspaces.remove(Path(found.workspace))
    shutil.rmtree(hidden, ignore_errors=True)  # what a crash leaves of it is swept when the store is opened
    return found


def _may_be_fork(session: Session) -> bool:
    """Whether a session whose header cannot be read may go on with the events of another: its own begin behind the first."""
    try:
        _ = session.header
    except NewerFormat:
        return True
    except (IpyagentError, OSError):
        firsts = [file.first for file in session.layout.segments()] + [file.first for file in session.layout.journals()]
        return bool(firsts) and min(firsts) > 1
    return False


def _only_its_own(store: Store, session: Session) -> Path | None:
    """The workspace that goes with the session: its own, where no other works."""
    with contextlib.suppress(IpyagentError):
        name = session.workspace_name
        folder = store.workspaces_folder / name.partition("/")[0] if name and is_id(name.partition("/")[0]) else None
        if folder is not None and folder.is_dir():
            using = workspaces.used(store, store.session_ids())[folder.name]
            return folder if using == [session.id] else None
    return None


def hand_over(parent: Session, child: Session) -> None:
    """Give a fork the part of its parent's log that it shares.  The caller holds both.  Raises DamageError."""
    point = child.header.parent
    if point is None or point.session != parent.id:
        return
    disk, count = parent.place.disk, 0
    named: dict[str, None] = {}
    for event in Reader(parent.layout, parent.first).events(until=point.seq):
        named |= dict.fromkeys(named_by(event))
        count += 1
    if count != point.seq - parent.first + 1:
        raise DamageError(
            f"session {child.id} shares events of {parent.id} that are damaged or missing",
            hint="ipyagent verify says where; delete the fork first, or restore the file from a copy",
        )
    for left in child.layout.segments():
        if left.last <= point.seq:  # from a try that came to no end
            left.path.unlink()
    sealing.seal_whole(child.layout, Reader(parent.layout, parent.first).events(until=point.seq), disk)
    for name in named:
        child.blobs.write(name, parent.blobs.read(name), disk)
    header = msgspec.structs.replace(
        child.header,
        parent=parent.header.parent,
        foreign=child.header.foreign or not parent.native,
        workspace=child.workspace_name,
    )
    disk.write_whole(child.layout.header, msgspec.json.encode(header), what="header")
