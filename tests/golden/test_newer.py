"""What a newer version wrote is refused with its number and what to install, at every door; nothing is written meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from ipyagent_sessions import payloads as p
from ipyagent_sessions.cli import main
from ipyagent_sessions.errors import UPDATE
from ipyagent_sessions.events import NULL, Event
from ipyagent_sessions.exchange import pack
from ipyagent_sessions.log import live
from ipyagent_sessions.log.format import line_of
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.memory import journal
from ipyagent_sessions.retention import deletion, workspaces
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.state import FORM
from ipyagent_sessions.store import Store

Refused = Callable[..., str]
NEWER = "2026-12-01T00:00:00.000Z"
READ = [["status"], ["state"], ["replay"], ["effects"], ["rollback"]]
WRITE = [
    ["fork"],
    ["resume"],
    ["rerun", "--yes"],
    ["cancel"],
    ["pause"],
    ["approve"],
    ["deny"],
    ["checkpoint", "x"],
    ["rename", "other"],
]
CARRY = [["export", "--notebook"], ["export", "--atif"]]


@pytest.fixture
def waits(store: Store, me: Holder) -> Session:
    """A session whose task waits for a person, and another one that is whole."""
    found = store.create(title="waits")
    for session in (found, store.create(title="other")):
        appender = session.append(me)
        task_id = f"{session.id}.1"
        appender.emit("TaskQueued", p.TaskQueued("m:f"), task_id=task_id)
        appender.emit("TaskStarted", p.TaskStarted(), task_id=task_id)
        appender.emit("ApprovalRequested", p.ApprovalRequested("a1", "Go on?", NULL, "d"), task_id=task_id)
        appender.emit("TaskSuspended", p.TaskSuspended("approval", "Go on?"), task_id=task_id)
        appender.close()
        live.write_summary(session.layout, summarise(session.id, session.state()), store.disk)
    return found


@pytest.fixture
def refused(waits: Session, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Refused:
    """Give a command about the session; it must say no in one line and write nothing.  Returns the line."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> str:
        before = _tree(store.root)
        about = [words[0], *words[1:2], waits.id, *words[2:]] if words[0] == "checkpoint" else [words[0], waits.id, *words[1:]]
        assert main(["--store", os.fspath(store.root), *about]) == 1, words
        said = capsys.readouterr()
        assert said.out == "", words
        assert _tree(store.root) == before, words
        (line,) = said.err.strip().splitlines()
        return str(line)

    return call


def _tree(root: Path) -> dict[str, bytes]:
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.endswith((".lock", "holder.json"))}


def raised(path: Path) -> None:
    body = path.read_bytes()
    assert b'"format":1' in body
    path.write_bytes(body.replace(b'"format":1', b'"format":99', 1))


def add(session: Session, **more: Any) -> None:
    """An event of a version to come at the end of the journal."""
    event = msgspec.structs.replace(Event(session.last_seq() + 1, "TaskTeleported", NEWER, payload=NULL), **more)
    journal = session.layout.journals()[-1].path
    journal.write_bytes(journal.read_bytes() + line_of(event))


def test_a_newer_store(refused: Refused, store: Store) -> None:
    raised(store.root / "store.json")
    for words in [*READ, *WRITE, *CARRY, ["log"], ["checkpoints"], ["verify"], ["delete"], ["upgrade"], ["export"]]:
        assert f"has format 99, this version reads up to 1; {UPDATE}" in refused(*words)


def test_a_newer_session(refused: Refused, waits: Session, store: Store, capsys: Any) -> None:
    raised(waits.layout.header)
    for words in [*READ, *WRITE, *CARRY, ["log"], ["checkpoints"], ["export"], ["export", "--jsonl"], ["export", "--otel"]]:
        assert f"session {waits.id} has format 99, this version reads up to 1; {UPDATE}" in refused(*words)
    assert {x.session_id: x.state for x in store.sessions()}[waits.id] == "newer", "not shown as this version would"
    found = store.sql("select session_id from sessions")
    assert waits.id not in {r["session_id"] for r in found.rows()}
    assert [problem for problem in found.problems if waits.id in problem and "format 99" in problem]
    assert main(["--store", os.fspath(store.root), "verify"]) == 1
    assert "0 damaged, 0 repaired, 0 notes, 1 newer than this version" in capsys.readouterr().out
    assert main(["--store", os.fspath(store.root), "upgrade", "--yes"]) == 1
    assert f"left as it is: {waits.id}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "is of the unknown type 'TaskTeleported'"),
        ({"event_type": "TaskResumed", "schema_version": 9}, "(TaskResumed) has form 9, this version reads 1"),
    ],
)
def test_a_newer_event(refused: Refused, waits: Session, store: Store, more: Any, said: str, capsys: Any) -> None:
    add(waits, agent_version="ipyagent-9.1", **more)
    for words in [*READ, *WRITE, *CARRY]:
        line = refused(*words)
        assert said in line
        assert "written by ipyagent-9.1; install that version" in line
    (problem,) = store.sql("select state from tasks").problems
    assert said in problem
    assert main(["--store", os.fspath(store.root), "log", waits.id]) == 0, "an event that is not folded is shown"
    assert main(["--store", os.fspath(store.root), "verify", waits.id]) == 1
    assert "1 newer than this version" in capsys.readouterr().out
    path = store.root.parent / "newer.zip"
    pack.export(waits, path)
    empty = store.root.parent / "empty"
    assert main(["--store", os.fspath(empty), "import", os.fspath(path)]) == 1
    assert said in capsys.readouterr().err
    assert not (empty / "s" / waits.id).exists()


def test_an_event_that_may_be_passed_over_is(waits: Session) -> None:
    add(waits, ignorable=True, schema_version=9)
    assert waits.state().seq == waits.last_seq()
    assert waits.place.disk is not None


def test_a_newer_segment(refused: Refused, waits: Session, me: Holder) -> None:
    waits.append(me).close(rest=True)
    (segment,) = waits.layout.segments()
    table = pq.read_table(segment.path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"ipyagent.format": b"99"}), segment.path)
    for path in waits.layout.journals()[:-1]:
        path.path.unlink()
    for words in (["state"], ["log"], ["resume"]):
        assert f"has format 99, this version reads up to 1; {UPDATE}" in refused(*words)


def test_a_summary_of_a_newer_form_is_made_from_the_log(waits: Session, store: Store) -> None:
    newer = msgspec.structs.replace(waits.summary(), form=FORM + 1, state="completed", title="other")
    live.write_summary(waits.layout, newer, store.disk)
    assert {x.session_id: x.state for x in store.sessions()}[waits.id] == "suspended"


def test_a_newer_archive_is_refused_with_its_direction(waits: Session, store: Store, tmp_path: Path, capsys: Any) -> None:
    import zipfile

    pack.export(waits, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as old, zipfile.ZipFile(tmp_path / "b.zip", "w") as new:
        for name in old.namelist():
            body = old.read(name)
            new.writestr(name, body.replace(b'"format":1', b'"format":99', 1) if "/" not in name else body)
    assert main(["--store", os.fspath(tmp_path / "empty"), "import", os.fspath(tmp_path / "b.zip")]) == 1
    assert f"has format 99, this version reads up to 1; {UPDATE}" in capsys.readouterr().err


def test_what_sessions_share_in_a_newer_format(store: Store, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store.memory.put("facts", "answer", 42)
    (path,) = (store.root / "memory").glob("journal-*.jsonl")
    with monkeypatch.context() as newer:
        newer.setattr(journal, "FORMAT", 99)
        path.unlink()
        Store(store.root).memory.put("facts", "answer", 42)
    for words in (["memory"], ["memory", "--search", "x"], ["memory", "facts", "--forget", "answer"], ["gc", "--yes"]):
        assert main(["--store", os.fspath(store.root), *words]) == 1, words
        assert f"has format 99, this version reads up to 1; {UPDATE}" in capsys.readouterr().err
    assert main(["--store", os.fspath(store.root), "verify"]) == 1
    assert "1 newer than this version" in capsys.readouterr().out


def test_nothing_that_a_newer_session_may_need_is_removed(waits: Session, store: Store) -> None:
    child = waits.fork()
    place = store.workspaces_folder / "ws"
    place.mkdir(parents=True)
    os.utime(place, (1.0, 1.0))
    assert [left.file for left in workspaces.left(store)] == ["w/ws"]
    raised(child.layout.header)
    assert workspaces.left(store) == []
    with pytest.raises(Exception, match=f"whether {child.id} needs it is not known"):
        deletion.delete(store, waits)
    assert waits.layout.root.is_dir()
    child.layout.header.write_bytes(b"damaged")
    with pytest.raises(Exception, match="is not known"):
        deletion.delete(store, waits)
    deletion.delete(store, child)
    other = next(session_id for session_id in store.session_ids() if session_id != waits.id)
    store.session(other).layout.header.write_bytes(b"damaged")
    deletion.delete(store, waits)  # the damaged one begins at its own first event
    assert store.session_ids() == [other]
