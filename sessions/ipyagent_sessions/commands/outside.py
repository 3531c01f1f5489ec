"""`effects`: what a session did to the world, in full and in the short form that a cancel, a fork and a failure show."""

from __future__ import annotations

from typing import Final

import msgspec

from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.commands.look import at_of
from ipyagent_sessions.session import Session
from ipyagent_sessions.textsafe import plain
from ipyagent_sessions.undo import ledger
from ipyagent_sessions.undo.ledger import Effect
from ipyagent_sessions.views import formats
from ipyagent_sessions.views.shown import Table

WIDE: Final = 120
_SHORT: Final = 20


def of(session: Session) -> list[Effect]:
    """The effects of a session with those it inherited, as they stand now."""
    return ledger.ledger(session.events(), running=session.effective_state() == "running")


def effects(door: Door, session: Session, *, after: str | None) -> Table:
    """The effects of a session, oldest first; with `after` those from after an event or a checkpoint.  The data hold all that
    is known of each."""
    since = at_of(session, after) or 0
    found = [e for e in of(session) if (e.settled or e.seq) > since]
    back = sum(e.restorable and e.state != "rolled back" for e in found)
    note = f"{_many(back, 'write')} can be rolled back: {door.prefix} rollback {session.id}" if back else ""
    rows = [
        [
            e.seq,
            formats.clock(e.at),
            e.what,
            e.state,
            "" if e.what in ("file", "command") else e.effect,
            e.name,
            _by(e),
            e.note,
        ]
        for e in found
    ]
    return Table(
        ["seq", "time", "what", "state", "effect", "name", "by", "note"],
        rows,
        right=["seq"],
        empty="nothing was done to the world" + (f" after event {since}" if since else ""),
        note=note,
        width=WIDE,
        data=[msgspec.to_builtins(e) for e in found],
    )


def _by(effect: Effect) -> str:
    """Which call or step a file, a command or a declared effect belongs to."""
    return "" if effect.whole else effect.activity or effect.tool


def still_there(session: Session, after: int = 0) -> list[str]:
    """What is still there from after an event, one line each (R115)."""
    return [_line(effect) for effect in ledger.still_there(of(session), after)]


def _line(effect: Effect) -> str:
    return plain(ledger.line(effect), 200)


def short(door: Door, session: Session, kept: list[str], head: str) -> list[str]:
    """The short form: `head`, at most twenty lines, and how to see all or roll files back.  Empty when there is nothing."""
    if not kept:
        return []
    more = [f"  and {len(kept) - _SHORT} more: {door.prefix} effects {session.id}"] if len(kept) > _SHORT else []
    return [head, *(f"  {line}" for line in kept[:_SHORT]), *more]


def rest_of_task(door: Door, session: Session) -> list[str]:
    """The short form of what the newest task of a session left."""
    kept = ledger.still_there(of(session), session.state().system_state.queued_seq)
    told = short(door, session, [_line(effect) for effect in kept], "still there, and not undone:")
    if any(effect.restorable for effect in kept):
        told.append(f"files can be rolled back: {door.prefix} rollback {session.id}")
    return told


def _many(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
