"""Stores of every earlier form of the state read as they did, and an upgrade makes them anew without touching the log.

What is opened here was written by the sources of earlier commits (`make_earlier.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ipyagent_sessions import state as states
from ipyagent_sessions import upgrade
from ipyagent_sessions.cli import main
from ipyagent_sessions.errors import LeaseHeld
from ipyagent_sessions.events import encode
from ipyagent_sessions.exchange import pack, unpack
from ipyagent_sessions.folding import fold
from ipyagent_sessions.log import checkpoints, live
from ipyagent_sessions.log.exclusive import exclusive
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.retention import backups
from ipyagent_sessions.retention.expiry import DAY
from ipyagent_sessions.session import Session
from ipyagent_sessions.state import FORM
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, FakeClock, FaultyDisk, activities
from ipyagent_sessions.verify import whole

HERE = Path(__file__).parent
FORMS = sorted(int(path.stem.partition("-")[2]) for path in HERE.glob("form-*.zip"))
TOLD = json.loads((HERE / "earlier.json").read_text("utf-8"))


def unpacked(form: int, folder: Path) -> Path:
    with zipfile.ZipFile(HERE / f"form-{form}.zip") as file:
        file.extractall(folder)
    return folder


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def earlier(form: int, tmp_path: Path, clock: FakeClock, disk: FaultyDisk) -> Store:
    return Store(unpacked(form, tmp_path / "earlier"), clock=clock, disk=disk)


@pytest.fixture
def first(tmp_path: Path, clock: FakeClock, disk: FaultyDisk) -> Store:
    """The store of the first form."""
    return Store(unpacked(0, tmp_path / "first"), clock=clock, disk=disk)


def tree(root: Path, *, log: bool = False) -> dict[str, bytes]:
    """The content of every file but locks; with `log` of those that hold events."""
    found = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    found = {name: body for name, body in found.items() if not name.endswith("lock")}
    return {name: body for name, body in found.items() if "journal-" in name or "events/" in name} if log else found


def sums(store: Store) -> dict[str, list[object]]:
    """By session how many events it has and the sha256 of their own, as `make_earlier.py` tells it."""
    told: dict[str, list[object]] = {}
    for session_id in store.session_ids():
        digests = [hashlib.sha256(encode(event)).hexdigest() for event in store.session(session_id).events()]
        told[session_id] = [len(digests), hashlib.sha256("".join(digests).encode()).hexdigest()]
    return told


def sessions(store: Store) -> Iterator[Session]:
    yield from (store.session(session_id) for session_id in sorted(store.session_ids()))


def test_every_earlier_form_is_kept_here() -> None:
    assert list(range(FORM)) == FORMS


def test_its_events_are_those_that_the_version_saw_that_wrote_it(earlier: Store, form: int) -> None:
    assert sums(earlier) == TOLD[str(form)]
    assert not whole.store(earlier).damaged
    assert sorted(s.state().title for s in sessions(earlier)) == ["done", "waits"]
    for session in sessions(earlier):
        assert states.encode(session.state()) == states.encode(fold(session.events())), "no snapshot of another form is used"


def test_a_plan_says_what_would_be_replaced_and_writes_nothing(earlier: Store, form: int) -> None:
    before = tree(earlier.root)
    found = upgrade.plan(earlier)
    assert tree(earlier.root) == before
    assert found.problems == {}
    whys = [older.why for older in found.older]
    assert whys.count(f"form {form} of the state, this version has {FORM}") == 5
    assert whys.count("it does not say in which store it was made") == (2 if form < 2 else 0)


def test_an_upgrade_replaces_what_is_derived_and_keeps_it_and_the_log_is_the_same(
    earlier: Store, form: int, me: Holder
) -> None:
    before, planned = tree(earlier.root), upgrade.plan(earlier).older
    done = upgrade.upgrade(earlier, by="tests")
    after = tree(earlier.root)
    assert done.problems == {}
    assert done.backup is not None
    assert sums(earlier) == TOLD[str(form)]
    log = tree(earlier.root, log=True)
    assert log == {name: body for name, body in before.items() if name in log}
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {f"s/{older.session_id}/{older.file}" for older in planned}
    assert {name: (done.backup / name).read_bytes() for name in changed} == {name: before[name] for name in changed}
    for session in sessions(earlier):
        assert all(info.complete for info in session.checkpoints())
        assert session.loaded().checkpoint is not None, "a resume need not fold the log again"
        for seq in checkpoints.sequence(session.layout):
            assert states.encode(checkpoints.load(session.layout, seq)[0]) == states.encode(fold(session.events(until=seq)))
        summary = live.read_summary(session.layout)
        assert summary is not None
        assert summary.state == session.state().system_state.status
    labels = {info.label for session in sessions(earlier) for info in session.checkpoints()}
    assert labels == {"1", "2", "3", "", "mine"}
    assert whole.store(earlier).findings == []
    record = upgrade.read(done.backup)
    assert record is not None
    assert {name: kept.events for name, kept in record.sessions.items()} == {n: t[0] for n, t in TOLD[str(form)].items()}
    assert upgrade.plan(earlier) == upgrade.Plan()
    assert upgrade.upgrade(earlier, by="tests") == upgrade.Done()
    for session in sessions(Store(earlier.root)):
        appender = session.append(me)
        activities(appender, 1)
        appender.close()


def test_a_checkpoint_holds_the_events_before_it_whoever_made_it_anew(first: Store) -> None:
    upgrade.upgrade(first, by="tests")
    for repaired in (False, True):
        for session in sessions(first):
            for seq in checkpoints.sequence(session.layout):
                if repaired:
                    checkpoints.path_of(session.layout, seq).write_bytes(b"rubbish")
                    assert not whole.session(session, repair=True).damaged
                held = [json.loads(bytes(event))["seq"] for event in checkpoints.load(session.layout, seq)[1].last_events]
                assert held == list(range(max(1, seq - 100), seq))


@pytest.mark.parametrize("upgraded", [False, True])
def test_its_sessions_travel_before_and_after_an_upgrade(earlier: Store, form: int, store: Store, upgraded: bool) -> None:
    if upgraded:
        upgrade.upgrade(earlier, by="tests")
    for session in sessions(earlier):
        path = earlier.root.parent / f"{session.id}.ipyagent.zip"
        pack.export(session, path)
        unpack.bring_in(store, path)
        assert not store.session(session.id).native
    assert sums(store) == TOLD[str(form)]
    assert whole.store(store).findings == []


def test_a_session_that_is_held_is_left_and_named_and_the_others_are_done(first: Store, me: Holder) -> None:
    held, other = sessions(first)
    header = msgspec.structs.replace(held.header, store=first.id)
    held.layout.header.write_bytes(msgspec.json.encode(header))
    appender = first.session(held.id).append(me)
    before = tree(held.layout.root)
    done = upgrade.upgrade(first, by="tests")
    assert list(done.sessions) == [other.id]
    assert list(done.problems) == [held.id]
    assert "is held by" in done.problems[held.id]
    assert tree(held.layout.root) == before
    appender.close()
    assert list(upgrade.upgrade(first, by="tests").sessions) == [held.id]
    with (
        exclusive(first.root / "upgrade.lock", what="an upgrade"),
        pytest.raises(LeaseHeld, match="another process"),
    ):
        upgrade.upgrade(first, by="tests")


def test_a_session_that_is_deleted_meanwhile_is_named_and_the_others_are_done(
    first: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, *others = sorted({older.session_id for older in upgrade.plan(first).older})
    planned = upgrade.plan

    def then_deleted(store: Store, session_id: str | None = None) -> upgrade.Plan:
        found = planned(store, session_id)
        shutil.rmtree(store.session(gone).layout.root)
        return found

    monkeypatch.setattr(upgrade, "plan", then_deleted)
    done = upgrade.upgrade(first, by="test")
    assert done.problems == {gone: "it was deleted meanwhile"}
    assert others
    assert sorted(done.sessions) == others
    assert not first.session(gone).layout.root.exists()


def test_a_session_whose_log_is_damaged_or_newer_is_left_as_it_is(first: Store) -> None:
    torn, newer = sorted(sessions(first), key=lambda session: session.last_seq())
    journal = next(path for path in torn.layout.journals() if path.first == 2).path
    journal.write_bytes(journal.read_bytes().replace(b"TaskStarted", b"TaskStartet"))
    header = newer.layout.header
    header.write_bytes(header.read_bytes().replace(b'"format":1', b'"format":9'))
    before = tree(first.root)
    done = upgrade.upgrade(first, by="tests")
    assert sorted(done.problems) == sorted([torn.id, newer.id])
    assert "lacks event" in done.problems[torn.id]
    assert "format 9" in done.problems[newer.id]
    assert {name: body for name, body in tree(first.root).items() if "backups/" not in name} == before


def test_what_was_imported_stays_foreign(first: Store) -> None:
    session = next(sessions(first))
    header = msgspec.structs.replace(session.header, store="elsewhere")
    session.layout.header.write_bytes(msgspec.json.encode(header))
    upgrade.upgrade(first, by="tests")
    assert not first.session(session.id).native


CUTS = """
import os, sys
from ipyagent_sessions import upgrade
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, FaultyDisk
from ipyagent_sessions.verify import whole

for line in open(sys.argv[1]):
    root, seam, at = line.rstrip("\\n").split("\\t")
    pid = os.fork()
    if pid == 0:
        try:
            disk = FaultyDisk()
            disk.kill(seam, at=int(at))
            upgrade.upgrade(Store(root, clock=FakeClock(), disk=disk), by="victim")
        finally:
            os._exit(0)
    print(os.WTERMSIG(os.waitpid(pid, 0)[1]), flush=True)
"""


def test_after_a_kill_at_any_point_the_store_reads_as_before_and_the_next_run_ends_it(tmp_path: Path, first: Store) -> None:
    shutil.copytree(first.root, tmp_path / "counted")
    disk = FaultyDisk()
    upgrade.upgrade(Store(tmp_path / "counted", disk=disk, clock=FakeClock()), by="tests")
    seams = {seam: n for seam, n in disk.passed.items() if seam.endswith("rename")}
    assert set(seams) == {
        f"{w} {x} rename" for w in ("before", "after") for x in ("backup", "checkpoint", "header", "upgrade")
    }
    cuts = [(f"{seam}-{n}".replace(" ", "-"), seam, n) for seam in sorted(seams) for n in range(1, seams[seam] + 1)]
    before = tree(first.root)
    for name, _, _ in cuts:
        shutil.copytree(first.root, tmp_path / name)
    listed = tmp_path / "cuts"
    listed.write_text("".join(f"{tmp_path / name}\t{seam}\t{n}\n" for name, seam, n in cuts))
    with Child(CUTS, os.fspath(listed)) as child:
        for name, seam, n in cuts:
            assert int(child.line(timeout=60)) == signal.SIGKILL, (seam, n)
            store = Store(tmp_path / name, clock=FakeClock())
            assert sums(store) == TOLD["0"], name
            assert not whole.store(store).damaged, name
            upgrade.upgrade(store, by="tests")
            assert upgrade.plan(store) == upgrade.Plan(), name
            assert whole.store(store).findings == [], name
            assert sums(store) == TOLD["0"], name
            (kept,) = upgrade.backups(store)
            for path in (p for p in (kept / "s").rglob("*") if p.is_file() and p.suffix != ".tmp"):
                assert path.read_bytes() == before[path.relative_to(kept).as_posix()], name
            record = upgrade.read(kept)
            assert record is not None
            assert record.ended is not None, name


def test_a_disk_that_refuses_leaves_all_readable_and_the_next_run_ends_it(first: Store, disk: FaultyDisk) -> None:
    disk.fail("before checkpoint rename", at=2)
    with pytest.raises(OSError, match="No space left"):
        upgrade.upgrade(first, by="tests")
    assert sums(first) == TOLD["0"]
    assert not whole.store(first).damaged
    assert upgrade.upgrade(first, by="tests").problems == {}
    assert len(upgrade.backups(first)) == 1


def test_a_backup_goes_after_its_time_and_one_that_is_needed_does_not(
    first: Store, clock: FakeClock, disk: FaultyDisk
) -> None:
    disk.fail("before header rename")
    with pytest.raises(OSError, match="No space left"):
        upgrade.upgrade(first, by="tests")
    clock.advance(31 * DAY)
    assert backups.outlived(first) == [], "the next run goes on with it"
    upgrade.upgrade(first, by="tests")
    clock.advance(29 * DAY)
    assert backups.outlived(first) == []
    clock.advance(2 * DAY)
    assert [due.why for due in backups.outlived(first)] == ["the upgrade ended 31 days ago, and backups are kept 30"]


def test_the_command_says_first_what_it_would_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpacked(0, tmp_path / "s")
    words = ["--store", os.fspath(root), "upgrade"]
    before = tree(root)
    assert main([*words[:2], "doctor"]) == 0
    assert "some files are of an older version" in capsys.readouterr().out
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "9 files of 2 sessions would be made anew; the log is not touched" in out
    assert "form 0 of the state" in out
    assert tree(root) == before
    assert main([*words, "--yes"]) == 0
    out = capsys.readouterr().out
    assert "9 files of 2 sessions made anew" in out
    (kept,) = upgrade.backups(Store(root))
    assert str(kept) in out
    assert main(words) == 0
    assert "all is of the form that this version writes" in capsys.readouterr().out
    record = kept / "upgrade.json"
    record.write_bytes(record.read_bytes().replace(b'"ended":"20', b'"ended":"19'))
    assert main(["--store", os.fspath(root), "gc", "--yes"]) == 0
    assert "backups: 1 removed" in capsys.readouterr().out
    assert not kept.exists()
    assert f"backups/{kept.name}" in (root / "gc.jsonl").read_text()
