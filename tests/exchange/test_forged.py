"""Archives whose checksums are right and whose events are not: refused in one error, with nothing left behind."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.exchange.test_archive import Members, contents, nothing_happened, told, write

from ipyagent_sessions import events
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import DamageError, UsageError
from ipyagent_sessions.exchange import archive, pack, unpack
from ipyagent_sessions.log.format import line_of
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, FaultyDisk
from ipyagent_sessions.undo.ledger import ledger


@pytest.fixture
def members(session: Session, me: Holder, tmp_path: Path) -> Members:
    """The members of an archive of a session whose third event is one of a tool's own."""
    appender = session.append(me)
    appender.emit("TaskQueued", p.TaskQueued("m:f"), task_id="t")
    noted = {"pid": 17, "started": 1.5, "command": "make", "mark": "m", "stopped": False}
    appender.emit("ProcessStarted", noted, task_id="t", parent=2, ignorable=True)
    appender.close()
    pack.export(session, tmp_path / "a.zip")
    return contents(tmp_path / "a.zip")


def changed(members: Members, change: Callable[[dict[str, Any]], object], at: int = 3) -> Members:
    """The archive with event `at` changed, and with checksums that fit."""
    name = next(n for n in members if n.endswith("events.jsonl"))
    lines = members[name].splitlines(keepends=True)
    event = json.loads(events.encode(events.decode(lines[at - 1])))
    change(event)
    lines[at - 1] = line_of(events.decode(json.dumps(event).encode()))
    return told({**members, name: b"".join(lines)})


WRONG: dict[str, Callable[[dict[str, Any]], object]] = {
    "timestamp '2026-13-45T99:99:99Z'": lambda e: e.update(timestamp="2026-13-45T99:99:99Z"),
    "timestamp ''": lambda e: e.update(timestamp=""),
    "timestamp '2026-01-01'": lambda e: e.update(timestamp="2026-01-01"),
    "recorded_at '2026-01-01T00:00:00": lambda e: e.update(recorded_at="2026-01-01T00:00:00.000+02:00"),
    "parent_event of more than 63 bits": lambda e: e.update(parent_event=2**70),
    "parent_event 0": lambda e: e.update(parent_event=0),
    "parent_event 3": lambda e: e.update(parent_event=3),
    "attempt 4294967296": lambda e: e.update(attempt=2**32),
    "input_tokens -1": lambda e: e.update(input_tokens=-1),
    "execution_time_ms -1.0, which is out of range": lambda e: e.update(execution_time_ms=-1),
    "cpu_s 1e+300, which is out of range": lambda e: e.update(cpu_s=1e300),
    "cost_usd -1e+308, which is out of range": lambda e: e.update(cost_usd=-1e308),
    "rss_bytes of more than 63 bits": lambda e: e.update(rss_bytes=2**64),
    "schema_version 1048576": lambda e: e.update(schema_version=2**20),
    "payload that does not fit its type ProcessStarted": lambda e: e["payload"].update(pid="x"),
    "payload that does not fit its type ConfigChanged": lambda e: e.update(event_type="ConfigChanged"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_event_that_could_not_have_been_written_is_refused(
    members: Members, session: Session, other: Store, tmp_path: Path, wrong: str
) -> None:
    forged = write(tmp_path / "f.zip", changed(members, WRONG[wrong]))
    with pytest.raises(DamageError) as raised:
        unpack.bring_in(other, forged)
    assert raised.value.message.startswith(f"f.zip was cut or changed: event 3 of session {session.id} has ")
    assert wrong.removeprefix("has ") in raised.value.message
    assert raised.value.hint == "export it again; nothing was imported"
    assert nothing_happened(other)


def test_what_is_as_it_was_written_is_taken(members: Members, session: Session, other: Store, tmp_path: Path) -> None:
    assert unpack.bring_in(other, write(tmp_path / "f.zip", changed(members, lambda _: None))).new == [session.id]


def test_of_two_imports_of_an_archive_at_once_one_finds_it_here(
    members: Members, session: Session, tmp_path: Path, clock: FakeClock
) -> None:
    class First(FaultyDisk):
        """Another process imports the same in the last moment."""

        def seam(self, name: str) -> None:
            if name == "before import rename" and not other.session_ids():
                unpack.bring_in(other, path)

    path = write(tmp_path / "f.zip", members)
    other, mine = Store(tmp_path / "s"), Store(tmp_path / "s", clock=clock, disk=First())
    assert unpack.bring_in(mine, path).known == [session.id]
    assert [found.name for found in mine.sessions_folder.iterdir()] == [session.id], "and no draft is left"


def test_a_header_with_a_wrong_time_is_refused(members: Members, session: Session, other: Store, tmp_path: Path) -> None:
    name = f"s/{session.id}/session.json"
    header = json.dumps({**json.loads(members[name]), "created": "yesterday"}).encode()
    with pytest.raises(DamageError, match="says that it was made at 'yesterday'"):
        unpack.bring_in(other, write(tmp_path / "f.zip", told({**members, name: header})))
    assert nothing_happened(other)


@pytest.mark.parametrize("depth", [3_000, 100_000])
@pytest.mark.parametrize("name", ["manifest.json", "s/{}/session.json"])
def test_what_is_nested_too_deep_is_refused(
    members: Members, session: Session, other: Store, tmp_path: Path, name: str, depth: int
) -> None:
    name = name.format(session.id)
    forged = {**members, name: b'{"format":1,"x":' + b"[" * depth + b"]" * depth + b"}"}
    path = write(tmp_path / "f.zip", forged if name == archive.MANIFEST else told(forged))
    with pytest.raises(DamageError, match=r"f.zip was cut or changed: .* cannot be read: JSON is nested too deep"):
        unpack.bring_in(other, path)
    assert nothing_happened(other)


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_only_the_compression_of_an_export_is_accepted(members: Members, other: Store, tmp_path: Path, kind: int) -> None:
    path = tmp_path / "f.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in members.items():
            file.writestr(name, body, kind if name != archive.MANIFEST else zipfile.ZIP_DEFLATED)
    with pytest.raises(UsageError, match="compressed in a way that `export` does not use"):
        unpack.bring_in(other, path)
    assert nothing_happened(other)


def test_a_stored_member_is_accepted(members: Members, session: Session, other: Store, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "f.zip", "w", zipfile.ZIP_STORED) as file:
        for name, body in members.items():
            file.writestr(name, body)
    assert unpack.bring_in(other, tmp_path / "f.zip").new == [session.id]


def test_an_event_of_a_workflow_under_the_name_of_a_note_is_no_effect(session: Session, me: Holder) -> None:
    appender = session.append(me)
    appender.emit("ProcessStarted", {"pid": "x"}, ignorable=True)
    appender.close()
    assert ledger(session.events()) == []
