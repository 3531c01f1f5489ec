"""An import does not depend on the order: what is shorter here grows, a fork with a copy of its parent is the same fork."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.exchange.test_archive import contents, told, write

from ipyagent_sessions import events
from ipyagent_sessions import payloads as p
from ipyagent_sessions import state as states
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.exchange import pack, unpack
from ipyagent_sessions.log.format import line_of
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.retention import deletion
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import activities
from ipyagent_sessions.verify import whole


@pytest.fixture
def early(parent: Session, me: Holder) -> Session:
    """A fork of an early event of the parent."""
    seq = next(e.seq for e in parent.events() if e.seq > 20 and not parent.open_activities(e.seq))
    forked = parent.fork(seq)
    appender = forked.append(me)
    activities(appender, 3)
    appender.close()
    return forked


@pytest.fixture
def files(early: Session, parent: Session, tmp_path: Path) -> tuple[Path, Path]:
    """The archives of the parent and of the fork."""
    pack.export(parent, tmp_path / "p.zip")
    pack.export(early, tmp_path / "f.zip")
    return tmp_path / "p.zip", tmp_path / "f.zip"


def same(store: Store, session: Session) -> None:
    there = store.session(session.id)
    assert [events.encode(e) for e in there.events()] == [events.encode(e) for e in session.events()]
    assert states.encode(there.state()) == states.encode(session.state())
    assert there.summary().updated_at == session.state().updated_at
    assert not there.native


def test_a_session_that_is_shorter_here_gets_what_is_missing(
    files: tuple[Path, Path], early: Session, parent: Session, other: Store
) -> None:
    unpack.bring_in(other, files[1])
    header = other.session(parent.id).layout.header.read_bytes()
    short = other.session(parent.id).last_seq()
    assert other.sql("select count(*) as n from events").rows()[0]["n"] == early.last_seq()
    done = unpack.bring_in(other, files[0])
    assert (done.new, done.known, done.grown) == ([], [], {parent.id: parent.last_seq() - short})
    same(other, parent)
    same(other, early)
    assert other.session(parent.id).layout.header.read_bytes() == header
    assert whole.store(other).findings == []
    seqs = other.sql(f"select seq from events where session_id = '{parent.id}' order by seq").rows()
    assert [row["seq"] for row in seqs] == list(range(1, parent.last_seq() + 1))
    assert unpack.bring_in(other, files[0]).known == [parent.id]
    assert unpack.bring_in(other, files[1]).known == [parent.id, early.id]
    assert [path.name for path in other.sessions_folder.iterdir() if path.name.startswith(".")] == []


def test_an_activity_that_is_open_where_it_goes_on_is_known_behind_it(
    session: Session, me: Holder, other: Store, tmp_path: Path
) -> None:
    appender = session.append(me)
    appender.emit("TaskQueued", p.TaskQueued("m:f"), task_id="t")
    appender.emit("ActivityStarted", p.ActivityStarted("slow"), task_id="t", activity_id="/slow:1")
    appender.close()
    pack.export(session, tmp_path / "1.zip")
    appender = session.append(me)
    activities(appender, 2)
    appender.close()
    pack.export(session, tmp_path / "2.zip")
    unpack.bring_in(other, tmp_path / "1.zip")
    unpack.bring_in(other, tmp_path / "2.zip")
    there = other.session(session.id)
    for seq in range(1, session.last_seq() + 1):
        assert there.open_activities(seq) == session.open_activities(seq)


def test_a_longer_one_with_other_content_is_refused_and_adds_nothing(
    files: tuple[Path, Path], parent: Session, other: Store, tmp_path: Path
) -> None:
    unpack.bring_in(other, files[1])
    short, members = other.session(parent.id).last_seq(), contents(files[0])
    name = f"s/{parent.id}/events.jsonl"
    lines = members[name].splitlines(keepends=True)
    lines[3] = line_of(events.decode(lines[3].replace(b'"seq":4,', b'"seq":4,"cpu_s":0.5,')))
    with pytest.raises(UsageError, match="with other content from event 4 on"):
        unpack.bring_in(other, write(tmp_path / "x.zip", told({**members, name: b"".join(lines)})))
    assert other.session(parent.id).last_seq() == short


def test_a_crash_while_it_grows_leaves_a_shorter_session_and_the_next_import_goes_on(
    files: tuple[Path, Path], parent: Session, other: Store
) -> None:
    unpack.bring_in(other, files[1])
    disk: Any = other.disk
    for at in (1, 2):
        disk.fail("before import rename", at=at)
        with pytest.raises(OSError, match="No space"):
            unpack.bring_in(other, files[0])
        assert not [f for f in whole.store(other).findings if f.level == "damage"]
        assert [path.name for path in other.sessions_folder.iterdir() if path.name.startswith(".")] == []
    unpack.bring_in(other, files[0])
    same(other, parent)


def test_to_what_was_made_here_nothing_is_added_and_that_it_is_shorter_is_said(
    parent: Session, files: tuple[Path, Path], store: Store, me: Holder, tmp_path: Path
) -> None:
    members = contents(files[0])
    alarm = events.as_raw({"kind": "a", "text": "b"})
    longer = events.Event(parent.last_seq() + 1, "AlarmRaised", "2026-01-01T00:00:00.000Z", payload=alarm)
    name = f"s/{parent.id}/events.jsonl"
    members[name] += line_of(longer)
    manifest = json.loads(members["manifest.json"])
    manifest["lineage"][-1]["last"] += 1
    members["manifest.json"] = json.dumps(manifest).encode()
    before = parent.last_seq()
    what = f"and shorter: it ends at event {before}, and the archive goes on to event {before + 1}"
    with pytest.raises(UsageError, match=what):
        unpack.bring_in(store, write(tmp_path / "x.zip", told(members)))
    assert parent.last_seq() == before


def test_a_fork_with_its_own_copy_of_a_deleted_parent_is_the_same_fork(
    files: tuple[Path, Path], early: Session, parent: Session, other: Store, store: Store
) -> None:
    unpack.bring_in(other, files[1])
    for place in (other, store):
        deletion.delete(place, place.session(parent.id))
        assert unpack.bring_in(place, files[0]).new == [parent.id]
        assert unpack.bring_in(place, files[1]).known == [parent.id, early.id]


def test_a_fork_that_goes_on_from_another_history_is_another_one(
    files: tuple[Path, Path], early: Session, parent: Session, other: Store, me: Holder, tmp_path: Path
) -> None:
    unpack.bring_in(other, files[1])
    deletion.delete(other, other.session(parent.id))
    there = other.session(early.id)
    (segment,) = islice((s.path for s in there.layout.segments()), 1)
    segment.unlink()
    with pytest.raises(UsageError, match=r"with other content before event|cannot be read|is missing"):
        unpack.bring_in(other, files[1])


def test_an_event_that_is_missing_here_is_said(files: tuple[Path, Path], parent: Session, other: Store) -> None:
    unpack.bring_in(other, files[0])
    there = other.session(parent.id)
    (segment,) = there.layout.segments()
    segment.path.write_bytes(b"rubbish")
    with pytest.raises(UsageError, match="is here already, and its event 1 is missing"):
        unpack.bring_in(other, files[0])
    there.layout.header.write_bytes(b"{")
    with pytest.raises(UsageError, match="is here already, and cannot be read"):
        unpack.bring_in(Store(other.root), files[0])
