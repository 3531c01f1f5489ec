"""Commands that only look: they take no lock and change nothing."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

from ipyagent_sessions import payloads as p
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.errors import NotFound, UsageError
from ipyagent_sessions.events import Event, payload_of, seconds_of
from ipyagent_sessions.lifecycle import TRANSITIONS, TaskState
from ipyagent_sessions.log.reader import seqs
from ipyagent_sessions.retention import clean
from ipyagent_sessions.session import Session
from ipyagent_sessions.state import State, encode
from ipyagent_sessions.store import Listed
from ipyagent_sessions.views import formats
from ipyagent_sessions.views import html as html_view
from ipyagent_sessions.views import text as text_view
from ipyagent_sessions.views.card import Card, card
from ipyagent_sessions.views.shown import Shown, Table
from ipyagent_sessions.views.story import line_of, steps_of

LISTED: Final = 20
WIDE: Final = 160
_DIGITS: Final = 16
"""No event has a number of more digits."""


def ls(door: Door, *, everything: bool) -> Table:
    """The sessions of this notebook (or of the store), newest change first.  The data are the raw fields of each."""
    now = door.store.clock.now()
    found = door.store.sessions()
    kept = [x for x in found if everything or _is_of(door, x)]
    if not everything:
        kept = kept[:LISTED]
    hidden = len(found) - len(kept)
    damage = [f"{x.session_id} cannot be read: {x.problem}" for x in kept if x.problem and x.summary is not None]
    note = "\n".join(filter(None, [*damage, f"{hidden} more with --all" if hidden else "", clean.standing(door.store)]))
    none = (
        "no sessions yet"
        if door.store.exists()
        else f"there is no store at {door.store.root} (IPYAGENT_STORE names another one)"
    )
    return Table(
        ["id", "title", "state", "done", "changed", "needs you", "notebook"],
        [_ls_row(x, now) for x in kept],
        note=note,
        data=[_ls_data(x) for x in kept],
        empty=f"{none}; start one with: {door.prefix} run TARGET" + (f" ({note})" if note else ""),
    )


def _is_of(door: Door, listed: Listed) -> bool:
    """Whether a session is of the notebook at this door; a damaged one may be."""
    here = door.origin.notebook
    return here is None or listed.summary is None or listed.summary.notebook == here


def _ls_row(listed: Listed, now: float) -> list[Any]:
    summary = listed.summary
    if summary is None:
        return [listed.session_id, listed.problem, listed.state, "", "", "", ""]
    return [
        listed.session_id,
        summary.title,
        listed.state if listed.silence is None else f"{listed.state}, silent for {formats.duration(listed.silence)}",
        f"{summary.done} of {summary.total}" if summary.total is not None else str(summary.done),
        formats.age(now - seconds_of(summary.updated_at)),
        f"{summary.needs_you} request{'s' if summary.needs_you != 1 else ''}" if summary.needs_you else "",
        (summary.notebook or "").rpartition("/")[2],
    ]


def _ls_data(listed: Listed) -> dict[str, Any]:
    known = {} if listed.summary is None else {f: getattr(listed.summary, f) for f in listed.summary.__struct_fields__}
    known.pop("session_id", None)
    return {
        "id": listed.session_id,
        **known,
        "state": listed.state,
        "silent_s": None if listed.silence is None else round(listed.silence, 1),
        "problem": listed.problem,
    }


def card_of(door: Door, session: Session, at: int | None = None) -> Card:
    """The card of a session now, or as it was after event `at`."""
    if at is None:
        state = session.state()
        status = state.system_state.status
        effective = session.effective_state() if status is not None else "empty"
        if status is not None and effective != "lost":
            effective = status.value
        shown = card(session.id, state, session.live(), effective, door.store.clock.now())
        silence = session.silence() if effective == TaskState.RUNNING else None
        if silence is not None:
            shown.alarms.append(_silent(silence, f"{door.prefix} resume {session.id} --take-over"))
        return shown
    state = session.state(at)
    status = state.system_state.status
    return card(session.id, state, None, status.value if status else "empty", seconds_of(state.updated_at))


def _silent(silence: float, take_over: str) -> str:
    return (
        f"no sign of life for {formats.duration(silence)}: its process is stopped, or cannot write to the store; to go on "
        f"without it: {take_over}"
    )


def show_card(door: Door, shown: Card) -> Shown:
    """A card as text and HTML."""
    return Shown(
        text_view.card(shown, prefix=door.prefix), html_view.card(shown, prefix=door.prefix), msgspec.to_builtins(shown)
    )


def status(door: Door, session: Session) -> Shown:
    """A task now."""
    return show_card(door, card_of(door, session))


def log(session: Session, *, last: int, event_type: str | None) -> Table:
    """The newest events, oldest first.  The data are the events as they were written."""
    end, missing = session.last_seq(), list[tuple[int, int]]()
    after = 0 if event_type else max(0, end - last)
    wanted = (e for e in session.events(after=after, missing=missing) if event_type is None or e.event_type == event_type)
    found = list(deque(wanted, maxlen=last))
    gaps = "\n".join(_gap(session, low, high) for low, high in missing)
    return Table(
        ["seq", "time", "event", "activity", "what"],
        [row for event in found for row in _log_rows(event)],
        right=["seq"],
        note=gaps,
        empty="\n".join(filter(None, ["no events of that kind", gaps])),
        width=WIDE,
        data=[{**{f: getattr(event, f) for f in event.__struct_fields__}, "payload": payload_of(event)} for event in found],
    )


def _gap(session: Session, low: int, high: int) -> str:
    return f"{seqs(low, high)} {'is' if low == high else 'are'} damaged or missing; ipyagent verify {session.id} says where"


def _log_rows(event: Event) -> list[list[Any]]:
    """An event as it stands in the log: one line, and of a recovery one more for each of its steps."""
    attempt = f" (attempt {event.attempt})" if event.attempt and event.attempt > 1 else ""
    told = line_of(event)
    row = [event.seq, formats.clock(event.timestamp), event.event_type, f"{event.activity_id or ''}{attempt}", told]
    return [row, *(["", "", f"  {step}", "", came_to] for step, came_to in steps_of(event))]


def state(session: Session, *, at: str | None) -> Shown:
    """The three layers of the state, with what is finished as a list of ids."""
    data = state_data(session.state(at_of(session, at)))
    text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    return Shown(text, html_view.tree(data), data)


def state_data(found: State) -> dict[str, Any]:
    """The state as JSON-like data for people: results by id, without the form they are stored in."""
    data = msgspec.json.decode(encode(found))
    results = found.business_state.results
    data["business_state"]["results"] = {
        key: {
            "seq": r.seq,
            "ok": r.ok,
            "kind": r.kind,
            **(
                {"result": msgspec.json.decode(r.result)} if r.ok and not r.by_reference and r.kind in ("step", "tool") else {}
            ),
        }
        for key, r in results.items()
    }
    for approval_id, asked in found.execution_state.approvals.items():
        data["execution_state"]["approvals"][approval_id]["details"] = msgspec.json.decode(asked.details)
    return data  # type: ignore[no-any-return]  # msgspec types it as Any


def checkpoints(session: Session) -> Table:
    """Every checkpoint event of the session with its snapshot, if one was written."""
    files = {info.seq: info for info in session.checkpoints()}
    rows = []
    for event in session.events():
        if event.event_type != "CheckpointCreated":
            continue
        body = msgspec.json.decode(event.payload, type=p.CheckpointCreated)
        info = files.get(event.seq)
        snapshot = "from the log" if info is None else ("complete" if info.complete else info.problem)
        based = f", based on {info.base}" if info is not None and info.base is not None else ""
        rows.append(
            [
                event.seq,
                body.label,
                body.trigger,
                formats.clock(event.timestamp),
                formats.size(info.size) if info else "",
                snapshot + based,
            ]
        )
    return Table(
        ["seq", "label", "trigger", "time", "size", "snapshot"], rows, right=["seq", "size"], empty="no checkpoints yet"
    )


def replay(door: Door, session: Session, *, to: str | None, last: int) -> Shown:
    """What happened up to an event or a checkpoint, rebuilt from the log: no model and no tool is called, nothing is
    written."""
    until = at_of(session, to)
    if until == 0:
        raise NotFound(f"session {session.id} has no event 0; it has events 1 to {session.last_seq()}")
    picture = card_of(door, session, until if until is not None else session.last_seq() or None)
    first = max(1, picture.seq - last + 1)
    missing = list[tuple[int, int]]()
    rows = [row for event in session.events(after=first - 1, until=until, missing=missing) for row in _log_rows(event)]
    columns, right = ["seq", "time", "event", "activity", "what"], frozenset(["seq"])
    head = f"replay of {session.id}, events {first} to {picture.seq}; nothing is executed"
    if first > 1:
        head += f"\n{first - 1} earlier events with --last {picture.seq}"
    head += "".join(f"\n{_gap(session, low, high)}" for low, high in missing)
    listed = text_view.table(columns, rows, right=right, width=WIDE)
    text = f"{head}\n\n{listed}\n\n{text_view.card(picture, prefix=door.prefix)}"
    html = html_view.pre(head) + html_view.table(columns, rows, right=right) + html_view.card(picture, prefix=door.prefix)
    return Shown(text, html, msgspec.to_builtins(picture))


def at_of(session: Session, wanted: str | None) -> int | None:
    """The seq meant by a number (`seq:27` where a checkpoint has that label), or by a checkpoint's label (`2.1`, `cp:2`).

    None for none.  Raises NotFound, and UsageError when a number may mean either.
    """
    if wanted is None:
        return None
    number = wanted.removeprefix("seq:")
    if number.isascii() and number.isdigit():
        if len(number) > _DIGITS:
            raise NotFound(f"session {session.id} has no event {number[:_DIGITS]}...; it ends at {session.last_seq()}")
        also = _label(session, wanted) if wanted == number else None
        if also is not None and also != int(number):
            raise UsageError(
                f"{wanted} is event {wanted} and the checkpoint {wanted!r} (event {also})",
                hint=f"write seq:{wanted} or cp:{wanted}",
            )
        return int(number)
    labelled = _label(session, wanted.removeprefix("cp:"))
    if labelled is None:
        raise NotFound(
            f"session {session.id} has no checkpoint {wanted!r}",
            hint="write an event's seq, or a label that ipyagent checkpoints lists",
        )
    return labelled


def _label(session: Session, wanted: str) -> int | None:
    found = None
    for event in session.events():
        if event.event_type == "CheckpointCreated" and payload_of(event).get("label") == wanted:
            found = event.seq
    return found


def states() -> Table:
    """The lifecycle as a table."""
    return Table(
        ["from", "to", "who may", "why", "what the person sees", "intermediate artefacts"],
        [
            [
                row.source.value if row.source else "",
                row.target.value,
                ", ".join(sorted(row.actors)),
                row.why,
                row.person_sees,
                row.artefacts,
            ]
            for row in TRANSITIONS
        ],
        width=WIDE,
    )
