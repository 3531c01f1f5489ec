"""Commands about the files of a store: are they what they were, and can they be made so."""

from __future__ import annotations

from typing import Any

import msgspec

from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.verify import whole
from ipyagent_sessions.verify.finding import Report
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
    data = {**msgspec.to_builtins(report), "damaged": report.damaged}
    return Judged(_table(report), data, failed=report.damaged)


def _table(report: Report) -> Shown:
    checked = (
        f"checked {_many(report.sessions, 'session')}, {_many(report.events, 'event')}, "
        f"{_many(report.snapshots, 'checkpoint')}, {_many(report.blobs, 'blob')}"
    )
    if not report.findings:
        return Shown(f"{checked}: all is as the log says")
    damage = sum(f.level == "damage" and not f.repaired for f in report.findings)
    repaired = sum(f.repaired for f in report.findings)
    notes = len(report.findings) - damage - repaired
    told = f"{checked}: {damage} damaged, {repaired} repaired, {_many(notes, 'note')}"
    rows = [
        ["repaired" if f.repaired else f.level, f.session, f.file, f.place, f.what, f.means, "" if f.repaired else f.todo]
        for f in sorted(report.findings, key=lambda f: (f.level != "damage", f.repaired))
    ]
    return Table(["", "session", "file", "place", "what", "means", "to do"], rows, note=told, width=WIDE)


def _many(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
