"""The log is the truth: everything else of a session can be deleted and comes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ipyagent_sessions import state as states
from ipyagent_sessions.log import live
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FaultyDisk, activities


@pytest.fixture
def used(session: Session, me: Holder, disk: FaultyDisk) -> Session:
    appender = session.append(me)
    activities(appender, 30)
    appender.checkpoint("manual", "a")
    activities(appender, 5)
    live.write_live(session.layout, live.Live("t", appender.epoch, 1.0), disk)
    live.write_summary(session.layout, summarise(session.id, appender.state), disk)
    appender.close()
    return session


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@pytest.mark.parametrize(
    "names",
    [
        ["checkpoints"],
        ["summary.json"],
        ["live.json"],
        ["holder.json"],
        ["checkpoints", "summary.json", "live.json", "holder.json", "inbox", "damaged"],
    ],
)
def test_deleting_what_can_be_rebuilt_loses_nothing(used: Session, store: Store, me: Holder, names: list[str]) -> None:
    state, summary = states.encode(used.state()), used.summary()
    for name in names:
        if (used.layout.root / name).exists():
            remove(used.layout.root / name)
    again = Store(store.root).session(used.id)
    assert states.encode(again.state()) == state
    assert again.summary() == summary
    assert [x.problem for x in store.sessions()] == [""]
    appender = again.append(me)
    assert states.encode(appender.state) == state
    appender.close()


def test_lock_files_may_go_when_nobody_holds_the_session(used: Session, me: Holder) -> None:
    for path in used.layout.root.glob("lease-*.lock"):
        path.unlink()
    used.append(me).close()
    assert used.state().seq == 72


@pytest.mark.parametrize("scribble", [b"", b"\0" * 50, b"{", b"[]", b'{"session_id":5}', b"\xff\xfe"])
@pytest.mark.parametrize("name", ["summary.json", "live.json", "holder.json"])
def test_scribbled_caches_are_taken_for_missing(used: Session, store: Store, me: Holder, name: str, scribble: bytes) -> None:
    summary = used.summary()
    (used.layout.root / name).write_bytes(scribble)
    assert used.summary() == summary
    used.live()
    assert not used.held()
    used.append(me).close()
    assert [x.problem for x in store.sessions()] == [""]


def test_a_copy_of_the_folder_is_a_whole_store(used: Session, store: Store, tmp_path: Path, me: Holder) -> None:
    shutil.copytree(store.root, tmp_path / "copy")
    copy = Store(tmp_path / "copy")
    assert copy.id == store.id
    session = copy.session(used.id)
    assert states.encode(session.state()) == states.encode(used.state())
    session.append(me).close()


def test_heartbeats_and_summaries_on_a_full_disk_are_missed_and_no_more(session: Session, tmp_path: Path) -> None:
    class Full(FaultyDisk):
        def replace(self, path: Path, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    live.write_live(session.layout, live.Live("t", 1, 1.0), Full())
    live.write_summary(session.layout, live.Summary("s", 1), Full())
    assert session.live() is None
