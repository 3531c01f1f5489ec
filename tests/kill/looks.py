"""What is looked at after each death and at the end, in the store and in the witness; each function gives what is wrong.

The words of the witness come in one order for all processes, so "executed again after it was acknowledged" is a question about
that order and not about clocks.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from tests.kill.witness import Witness
from tests.kill.workload import IRREVERSIBLE

from ipyagent_sessions import events as ev
from ipyagent_sessions import folding
from ipyagent_sessions import state as states
from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.lifecycle import LOST, TaskState
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.payloads import HAPPENED
from ipyagent_sessions.run.launch import result_of
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

UNREADABLE: Final = (IpyagentError, OSError)
"""What reading a broken store raises; whoever looks reports it."""


class Reference(Struct, frozen=True):
    """What a run that nobody killed came to: its result, its activities, the events it emitted itself."""

    result: Any
    activities: frozenset[str]
    emitted: int


def after_death(store: Store, witness: Witness, durability: str, *, running: bool) -> list[str]:
    """What is wrong with a store one of whose processes was just killed; with `running` another one is still at work."""
    wrong = [
        f"session {listed.session_id} is listed as damaged: {listed.problem}"
        for listed in store.sessions()
        if listed.problem and store.session(listed.session_id).layout.header.exists()
    ]
    for session in with_header(store):
        wrong += lost(session, witness) + not_contiguous(session)
        if durability == "sync":
            wrong += unrecorded(session, witness)
        if running:
            continue
        state = session.state()
        if states.encode(state) != states.encode(folding.fold(session.events())):
            wrong.append(f"the state at {state.seq} read through a snapshot is not the state folded from the log")
        wrong += [f"snapshot {c.seq}: {c.problem}" for c in session.checkpoints() if not c.complete]
        if state.system_state.status is TaskState.RUNNING and session.held():
            wrong.append("its holder is dead and it is shown as held")
        elif state.system_state.status is TaskState.RUNNING and session.effective_state() not in (LOST, "queued", "suspended"):
            wrong.append(f"its holder is dead and it is shown as {session.effective_state()}")
    return wrong


def with_header(store: Store) -> list[Session]:
    """The sessions that came so far as to have a header; of the others nothing was ever promised."""
    return [s for s in map(store.session, store.session_ids()) if s.layout.header.exists()]


def lost(session: Session, witness: Witness) -> list[str]:
    """Acknowledged events that are not in the log, or are there with other bytes."""
    promised = list(acknowledged(witness, session.id))  # before the log is read, which may be growing
    there = {e.seq: f"{zlib.crc32(ev.encode(e)):08x}" for e in session.events()}
    return [
        f"acknowledged event lost: {seq} {event_type} {activity_id or ''} (there: {there.get(seq)})"
        for seq, check, event_type, activity_id in promised
        if there.get(seq) != check
    ]


def acknowledged(witness: Witness, session_id: str) -> Iterator[tuple[int, str, str, str | None]]:
    """(seq, checksum, event_type, activity_id) of each event that was promised to be kept."""
    for note in witness.notes("acked"):
        if note["session"] == session_id:
            yield from note["events"]


def not_contiguous(session: Session) -> list[str]:
    """Gaps and doubles in the log as it is read, and damage other than an unfinished last line."""
    reader = Reader(session.layout, session.first)
    seqs = [e.seq for e in reader.events()]
    wrong = [f"damage: {d}" for d in reader.damage if getattr(d, "kind", "") != "torn"]
    if seqs != list(range(session.first, session.first + len(seqs))):
        wrong.append(f"the log is not contiguous: {len(seqs)} events from {seqs[0]} to {seqs[-1]}, missing {reader.missing}")
    return wrong


def unrecorded(session: Session, witness: Witness) -> list[str]:
    """Results that the workflow's body has seen in mode sync and that the log does not hold."""
    seen = [n["id"] for n in witness.notes("seen")]
    if not any(note["session"] == session.id for note in witness.notes("acked")):
        return []
    recorded = {e.activity_id for e in session.events() if e.event_type in ("ActivityCompleted", "ActivityFailed")}
    recorded |= vouched(session)
    return [f"the next step saw the result of {i}, which is not on disk" for i in seen if i not in recorded]


def vouched(session: Session) -> set[str]:
    """The activities of which a person has said that they happened."""
    asked: dict[str, list[str]] = {}
    out: set[str] = set()
    for event in session.events():
        if event.event_type == "ApprovalRequested":
            body = ev.payload_of(event)
            asked[body["approval_id"]] = body.get("about", [])
        elif event.event_type == "ApprovalResolved":
            body = ev.payload_of(event)
            if body.get("choice") == HAPPENED:
                out.update(asked.get(body["approval_id"], []))
    return out


def executed_again(session: Session, witness: Witness) -> list[str]:
    """Executions of activities that begin after their completion was acknowledged, or vouched for by a person."""
    done: set[str] = set()
    wrong = []
    for note in witness.notes("acked", "begin"):
        if note["w"] == "begin" and note["id"] in done:
            wrong.append(f"{note['id']} was completed and acknowledged, and was executed again (attempt {note['attempt']})")
        elif note["w"] == "acked" and note["session"] == session.id:
            done |= {
                (i or "").partition("/")[2] for _, _, event_type, i in note["events"] if event_type == "ActivityCompleted"
            }
    return wrong


def repeated_effects(witness: Witness) -> list[str]:
    """Irreversible effects that were had more than once."""
    count = Counter(n["id"] for n in witness.notes("effect") if n["id"].startswith(IRREVERSIBLE))
    return [f"the irreversible effect of {who} was had {n} times" for who, n in count.items() if n > 1]


def at_end(store: Store, witness: Witness, durability: str, reference: Reference) -> list[str]:
    """What is wrong with a run that is over and at rest."""
    sessions = [s for s in with_header(store) if s.state().system_state.task_id is not None]
    if len(sessions) != 1 or len(sessions[0].state().tasks) != 1:
        return [f"one call has become {[(s.id, list(s.state().tasks)) for s in sessions]}"]
    session = sessions[0]
    status = session.state().system_state
    if status.status is not TaskState.COMPLETED:
        return [f"it ended {status.status}: {status.reason} {status.detail}"]
    wrong = [*lost(session, witness), *not_contiguous(session), *executed_again(session, witness), *repeated_effects(witness)]
    if result_of(session) != reference.result:
        wrong.append(f"its result differs: {result_of(session)} instead of {reference.result}")
    if durability == "sync" and len({n["value"] for n in witness.notes("value")}) > 1:
        wrong.append("a recorded value was another one after a restart")
    return wrong + log_is_whole(session, witness, reference) + at_rest(session)


def log_is_whole(session: Session, witness: Witness, reference: Reference) -> list[str]:
    """Activities missing or recorded twice, answers given twice, effects that did not happen although recorded."""
    events = list(session.events())
    completed = Counter(e.activity_id for e in events if e.event_type == "ActivityCompleted" and "/" in (e.activity_id or ""))
    by_word = vouched(session)
    wrong = [f"{i} is recorded {n} times" for i, n in completed.items() if n > 1]
    on_word = {
        e.activity_id for e in events if e.event_type == "ActivityCompleted" and ev.payload_of(e).get("verified") == "person"
    }
    wrong += [f"{i} is both executed to its end and vouched for" for i in by_word & (set(completed) - on_word)]
    wrong += [f"{i} is recorded on a person's word that nobody gave" for i in on_word - by_word]
    wrong += [f"{i} is vouched for and not recorded" for i in by_word - set(completed)]
    differ = {i or "" for i in {*completed, *by_word} ^ reference.activities}
    if differ:
        wrong.append(f"other activities than in the run that nobody killed: {sorted(differ)}")
    answers = Counter(ev.payload_of(e)["approval_id"] for e in events if e.event_type == "ApprovalResolved")
    wrong += [f"approval {i} was answered {n} times" for i, n in answers.items() if n > 1]
    requests = [ev.payload_of(e) for e in events if e.event_type == "ControlRequested"]
    taken = Counter(
        r["args"]["approval_id"] for r in requests if r["action"] == "answer" and r.get("outcome", "accepted") == "accepted"
    )
    wrong += [f"{n} answers to approval {i} were accepted" for i, n in taken.items() if n > 1]
    wrong += [f"an answer to {i} was accepted and never given" for i in taken if i not in answers]
    controls = Counter(r["control_id"] for r in requests)
    wrong += [f"control {i} was logged {n} times" for i, n in controls.items() if n > 1]
    wrong += [
        f"request {n['control']} was accepted and is not in the log"
        for n in witness.notes("asked")
        if n["control"] not in controls
    ]
    emitted = sum(e.event_type == "TextMeasured" for e in events)
    if emitted != reference.emitted:
        wrong.append(f"{emitted} events of the workflow's own instead of {reference.emitted}")
    had = {n["id"] for n in witness.notes("effect")}
    wrong += [
        f"{i} is recorded and its effect was never had"
        for i in completed
        if i is not None and i.partition("/")[2].startswith((*IRREVERSIBLE, "put:")) and i.partition("/")[2] not in had
    ]
    return wrong


def at_rest(session: Session) -> list[str]:
    """What any other program finds in the sealed segments (each event once, none missing), and what a crash left about."""
    seqs = sealed_seqs(session.layout.events)
    wrong = []
    if len(seqs) != len(set(seqs)):
        wrong.append(f"plain pyarrow reads events twice: {sorted(s for s, n in Counter(seqs).items() if n > 1)[:5]}")
    if sorted(set(seqs)) != list(range(1, session.last_seq() + 1)):
        wrong.append(f"plain pyarrow reads {len(set(seqs))} of {session.last_seq()} events")
    wrong += [f"left lying about: {p.name}" for p in session.layout.root.rglob("*.tmp") if p.parent != session.layout.inbox]
    wrong += [f"a request was never taken: {p.name}" for p in session.layout.inbox.glob("*.json")]
    return wrong


def sealed_seqs(folder: Path) -> list[int]:
    """The seqs in all Parquet files of a folder, read without any of our code."""
    import pyarrow.parquet as pq

    columns = [pq.read_table(path, columns=["seq"])["seq"].to_pylist() for path in folder.glob("*.parquet")]
    return [int(seq) for column in columns for seq in column if seq is not None]
