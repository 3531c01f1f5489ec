"""Commands about the files of a store: are they what they were, and can they be made so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ipyagent_sessions import upgrade as upgrading
from ipyagent_sessions.commands.check import memory_policy_of, policy_of
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.errors import LeaseHeld
from ipyagent_sessions.retention import backups, clean, deletion, expiry, workspaces
from ipyagent_sessions.session import Session
from ipyagent_sessions.verify import whole
from ipyagent_sessions.verify.finding import Report
from ipyagent_sessions.views import formats
from ipyagent_sessions.views.shown import Shown, Table

WIDE = 160


class Judged(Shown):
    """A report on files: text, HTML and data as usual, and whether a door should say that something is wrong."""

    def __init__(self, shown: Shown, data: Any, *, failed: bool) -> None:
        super().__init__(shown.text, shown.html, data)
        self.failed = failed


def verify(door: Door, session_id: str | None, *, repair: bool) -> Judged:
    """Derive again what can be derived, for one session or for the store; `repair` makes anew what is derived and wrong."""
    if session_id is None:
        report = whole.store(door.store, repair=repair)
    else:
        report = whole.session(door.session(session_id), repair=repair)
    data = {**msgspec.to_builtins(report), "damaged": report.damaged, "newer": report.newer}
    return Judged(_table(report), data, failed=report.damaged or report.newer)


def upgrade(door: Door, session_id: str | None, *, yes: bool) -> Judged:
    """List what an older version wrote in another form; with `yes` make it anew, and keep what is replaced."""
    wanted = None if session_id is None else door.session(session_id).id
    if not yes:
        return _upgrade_plan(door, upgrading.plan(door.store, wanted))
    done = upgrading.upgrade(door.store, wanted, by=door.actor)
    files = sum(kept.files for kept in done.sessions.values())
    data = msgspec.to_builtins(done, enc_hook=str)
    told = [f"{_many(files, 'file')} of {_many(len(done.sessions), 'session')} made anew; the log was not touched"]
    if done.backup is None:
        told = ["all is of the form that this version writes"]
    else:
        told.append(f"what was replaced is in {done.backup}; gc lists it, and removes it after {upgrading.KEPT_DAYS} days")
    return Judged(Shown("\n".join([*told, *_left(done.problems)])), data, failed=bool(done.problems))


def _upgrade_plan(door: Door, found: upgrading.Plan) -> Judged:
    rows = [[item.session_id, item.file, formats.size(item.size), item.why] for item in found.older]
    sessions = len({item.session_id for item in found.older})
    note = f"{_many(len(rows), 'file')} of {_many(sessions, 'session')} would be made anew; the log is not touched"
    note += f"\ndo it with: {door.prefix} upgrade --yes; what is replaced is kept in {door.store.root / upgrading.BACKUPS}"
    table = Table(
        ["session", "file", "size", "why"],
        rows,
        right=["size"],
        note=note,
        empty="all is of the form that this version writes",
        width=WIDE,
    )
    left = "\n".join(_left(found.problems))
    shown = Shown(f"{table.text}\n{left}", None) if left else table
    return Judged(shown, msgspec.to_builtins(found), failed=bool(found.problems))


def _left(problems: dict[str, str]) -> list[str]:
    return [f"left as it is: {session_id}: {what}" for session_id, what in problems.items()]


def _gc_backups(door: Door, *, yes: bool) -> Table:
    """What upgrades replaced, once it has outlived its time."""
    due = backups.outlived(door.store) if door.store.exists() else []
    kept = len(upgrading.backups(door.store)) > len(due)
    empty = "no backup of an upgrade is old enough to go" if kept else "there are no backups of upgrades"
    return _gc_folders(door, "backup", due, empty, yes=yes)


def gc(door: Door, *, yes: bool) -> Shown:
    """List the checkpoints that have outlived the policy, and why; with `yes` remove them."""
    policy = policy_of(door, None)
    due = clean.checkpoints(door.store, policy, by=door.actor) if yes else expiry.expired(door.store, policy)
    rows = [[d.session_id, d.seq, d.file.rpartition("/")[2], formats.size(d.size), d.why] for d in due]
    size = formats.size(sum(d.size for d in due))
    kept = f"kept: completed {formats.duration(policy.successful_s)}, failed or cancelled {formats.duration(policy.failed_s)}"
    done = (
        f"{_many(len(due), 'checkpoint')} ({size}) {'removed; gc.jsonl in the store says what and why' if yes else 'would go'}"
    )
    note = f"{done}; {kept}" + ("" if yes else f"\nremove with: {door.prefix} gc --yes; the log and its results stay")
    columns = ["session", "seq", "checkpoint", "size", "why"]
    empty = f"no checkpoint has outlived its retention ({kept})"
    table = Table(columns, rows, right=["seq", "size"], note=note, empty=empty, width=WIDE)
    shared = _gc_memory(door, yes=yes)
    left = _gc_workspaces(door, yes=yes)
    replaced = _gc_backups(door, yes=yes)
    parts = {"checkpoints": table, "memory": shared, "workspaces": left, "backups": replaced}
    text, html = "\n\n".join(part.text for part in parts.values()), "".join(part.html for part in parts.values())
    return Shown(text, html, {name: part.data for name, part in parts.items()})


def _gc_workspaces(door: Door, *, yes: bool) -> Table:
    """Workspaces of isolated forks that no session names any more."""
    due = workspaces.left(door.store) if door.store.exists() else []
    return _gc_folders(door, "workspace", due, "every workspace of a fork is in use", yes=yes)


def _gc_folders(door: Door, what: str, due: Sequence[clean.Removable], empty: str, *, yes: bool) -> Table:
    """Folders of the store that are to go; with `yes` they go."""
    if yes:
        clean.folders(door.store, due, by=door.actor)
    rows = [[found.file, formats.size(found.size), found.why] for found in due]
    note = f"{what}s: {len(due)} {'removed' if yes else 'would go'}"
    return Table([what, "size", "why"], rows, right=["size"], note=note, empty=empty, width=WIDE)


def _gc_memory(door: Door, *, yes: bool) -> Table:
    """The same for what sessions share, by a policy of its own."""
    kept_s = memory_policy_of(door).kept_s
    due = door.store.memory.outlived(kept_s)
    if yes:
        clean.memory(door.store, due, by=door.actor)
    rows = [[o.namespace, o.key, formats.size(o.size), o.why] for o in due]
    kept = "for good" if kept_s is None else formats.duration(kept_s)
    done = "removed" if yes else "would go"
    note = f"shared entries: {len(due)} {done}; without a time of its own one is kept {kept}"
    empty = f"nothing that sessions share has outlived its time (without one it is kept {kept})"
    return Table(["namespace", "key", "size", "why"], rows, right=["size"], note=note, empty=empty, width=WIDE)


def delete(door: Door, session: Session, *, yes: bool) -> Shown:
    """Say what deleting a session loses and what depends on it; with `yes` do it."""
    found = deletion.loss(door.store, session)
    if yes:
        if found.problem and not found.unclear:
            raise LeaseHeld(f"{found.problem}; nothing was deleted", hint="pause or cancel it first")
        deletion.delete(door.store, session)
    told = [
        f"{'deleted' if yes else 'would delete'} {session.id} {found.title!r} ({found.state}): "
        f"{_many(found.events, 'event')}, {_many(found.tasks, 'task')}, "
        f"{formats.size(found.bytes)}, the record of {formats.money(found.cost_usd)}"
    ]
    if found.needs_you and not yes:
        told.append(f"{_many(found.needs_you, 'request')} of it wait for an answer")
    if found.forks:
        got = (
            "got a copy of what they share with it" if yes else "depend on it, and get a copy of what they share with it first"
        )
        told.append(f"its forks {', '.join(found.forks)} {got}")
    if found.workspace:
        goes = "went with it" if yes else "goes with it, with all that is not elsewhere"
        told.append(f"its workspace {found.workspace} ({formats.size(found.workspace_bytes)}) {goes}")
    if not yes:
        told.append(
            f"it cannot be done now: {found.problem}"
            if found.problem
            else f"do it with: {door.prefix} delete {session.id} --yes"
        )
        told.append(f"keep a copy with: {door.prefix} export {session.id}")
    return Shown("\n".join(told), None, {**msgspec.to_builtins(found), "deleted": yes})


def _table(report: Report) -> Shown:
    checked = (
        f"checked {_many(report.sessions, 'session')}, {_many(report.events, 'event')}, "
        f"{_many(report.snapshots, 'checkpoint')}, {_many(report.blobs, 'blob')}"
    )
    if not report.findings:
        return Shown(f"{checked}: all is as the log says")
    damage = sum(f.level == "damage" and not f.repaired for f in report.findings)
    repaired = sum(f.repaired for f in report.findings)
    newer = sum(f.level == "newer" for f in report.findings)
    notes = len(report.findings) - damage - repaired - newer
    told = f"{checked}: {damage} damaged, {repaired} repaired, {_many(notes, 'note')}"
    told += f", {newer} newer than this version" if newer else ""
    rows = [
        ["repaired" if f.repaired else f.level, f.session, f.file, f.place, f.what, f.means, "" if f.repaired else f.todo]
        for f in sorted(report.findings, key=lambda f: (f.level == "note", f.level != "damage", f.repaired))
    ]
    return Table(["", "session", "file", "place", "what", "means", "to do"], rows, note=told, width=WIDE)


def _many(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
