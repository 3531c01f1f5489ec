"""Stores of every released format open as they were; one of a newer format is refused with the direction, never misread.

`make.py` wrote what is kept here.  A format that was released is never written anew: if this fails, the reader is at fault.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import msgspec
import pytest
import zstandard

from ipyagent_sessions.errors import IpyagentError, NewerFormat
from ipyagent_sessions.events import NULL, Event, encode
from ipyagent_sessions.exchange import unpack
from ipyagent_sessions.history.sql import query
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.log import checkpoints
from ipyagent_sessions.log.format import line_of
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, activities
from ipyagent_sessions.verify import whole

HERE = Path(__file__).parent
FORMATS = sorted(int(path.stem.partition("-")[2]) for path in HERE.glob("store-*.zip"))


@pytest.fixture(params=FORMATS)
def golden(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Store:
    with zipfile.ZipFile(HERE / f"store-{request.param}.zip") as file:
        file.extractall(tmp_path / "golden")
    return Store(tmp_path / "golden", clock=clock)


def titled(store: Store, title: str) -> Session:
    return next(store.session(x.session_id) for x in store.sessions() if x.summary is not None and x.summary.title == title)


def test_the_present_format_is_kept() -> None:
    from ipyagent_sessions.log.layout import FORMAT

    assert FORMAT in FORMATS


def test_it_is_listed_and_its_states_are_what_they_were(golden: Store) -> None:
    assert sorted(x.state for x in golden.sessions()) == ["completed", "lost", "suspended"]
    state = titled(golden, "golden").state()
    assert state.system_state.status is TaskState.COMPLETED
    assert state.business_state.values == {"count": 3}
    assert state.business_state.files == {"out.txt": {"checksum": "sha256:00", "size": 12, "seq": state.seq - 2}}
    assert (state.seq, state.execution_state.done) == (175, 81)
    child = titled(golden, "golden (fork)").state()
    assert child.system_state.reason == "approval"
    assert [a.question for a in child.execution_state.approvals.values()] == ["Go on?"]
    assert child.lineage == [(titled(golden, "golden").id, 175)]


def test_nothing_of_it_is_damaged(golden: Store) -> None:
    report = whole.store(golden)
    assert not report.damaged, report.findings
    assert report.snapshots >= 5
    assert report.blobs == 1


def test_its_checkpoints_verify_or_are_folded_anew(golden: Store) -> None:
    session = titled(golden, "golden")
    for seq in checkpoints.sequence(session.layout):
        assert session.state(seq).seq == seq
    assert {i.label for i in session.checkpoints() if i.complete} in ({"1", "2", "3", "4", ""}, set())


def test_its_blobs_and_results_are_read(golden: Store) -> None:
    session = titled(golden, "golden")
    values = [session.payload(e)["result"] for e in session.events() if e.event_type == "ActivityCompleted"]
    assert values[-1] == "x" * 40_000
    assert values[0] == {"text": "é" * 20, "n": 4}


def test_it_is_queried(golden: Store) -> None:
    found = query(golden, "SELECT count(*) AS n, count(DISTINCT event_id) AS d FROM events")
    assert (found.problems, found.rows()) == ([], [{"n": 479, "d": 479}])
    assert len(query(golden, f"SELECT * FROM lineage('{titled(golden, 'golden (fork)').id}')")) == 179


def test_what_its_sessions_share_is_found(golden: Store) -> None:
    assert golden.memory.get("facts", "answer") == {"value": 42}
    assert golden.memory.problems() == []


def test_it_goes_on(golden: Store, me: Holder) -> None:
    session = titled(golden, "golden (fork)")
    appender = session.append(me)
    activities(appender, 3)
    appender.close(rest=True)
    assert not whole.session(session).damaged
    assert session.fork().state().seq == session.last_seq() + 1


@pytest.mark.parametrize("number", FORMATS)
def test_its_archive_is_imported(store: Store, number: int, tmp_path: Path) -> None:
    path = tmp_path / "a.ipyagent.zip"
    shutil.copy(HERE / f"archive-{number}.ipyagent.zip", path)
    done = unpack.bring_in(store, path)
    assert store.session(done.session_id).state().system_state.reason == "approval"
    assert not whole.store(store).damaged


def test_a_newer_format_is_refused_with_the_direction_wherever_it_is_met(golden: Store, me: Holder) -> None:
    session = titled(golden, "golden")
    refusals: list[IpyagentError] = []

    def refused(path: Path, body: bytes) -> None:
        kept = path.read_bytes()
        path.write_bytes(body)
        with pytest.raises(NewerFormat) as raised:
            Store(golden.root).session(session.id).append(me).close()
        refusals.append(raised.value)
        path.write_bytes(kept)

    for path in (golden.root / "store.json", session.layout.header):
        refused(path, path.read_bytes().replace(b'"format":1', b'"format":99'))
    journal = session.layout.journals()[-1].path
    newer = Event(
        session.last_seq() + 1, "TaskTeleported", "2026-01-01T00:00:00.000Z", payload=NULL, agent_version="ipyagent-9"
    )
    refused(journal, journal.read_bytes() + line_of(newer))
    refused(
        journal, journal.read_bytes() + line_of(msgspec.structs.replace(newer, event_type="TaskResumed", schema_version=9))
    )
    assert all("newer" in e.hint or "upgrade" in e.hint for e in refusals)
    assert not whole.store(golden).damaged, "nothing was written while it was refused"


def test_a_newer_checkpoint_is_passed_over_and_kept(golden: Store) -> None:
    session = titled(golden, "golden")
    path = checkpoints.path_of(session.layout, checkpoints.sequence(session.layout)[-1])
    body = zstandard.ZstdDecompressor().decompress(path.read_bytes())
    path.write_bytes(zstandard.ZstdCompressor().compress(body.replace(b'"format":1', b'"format":99', 1)))
    wanted = [encode(e) for e in session.events()]
    assert session.state().seq == 175
    newer = path.read_bytes()
    whole.session(session, repair=True)
    assert path.read_bytes() == newer, "it is the newer version's to use"
    assert [encode(e) for e in session.events()] == wanted
