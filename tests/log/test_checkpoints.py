"""Snapshots are verified, complete or invisible, found by seq, and never more than a convenience."""

from __future__ import annotations

import errno
import hashlib
import itertools
import random
import threading
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import zstandard

from ipyagent_sessions import payloads as p
from ipyagent_sessions import state as states
from ipyagent_sessions.errors import DamageError, NewerFormat, PersistenceError
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.log import appender as appending
from ipyagent_sessions.log import checkpoints, scribe
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import FaultyDisk, History, activities, emit, wait_until


def snapshot(appender: Appender, label: str = "", trigger: str = "manual") -> int:
    """Take a checkpoint and wait until its file is there."""
    event = appender.checkpoint(trigger, label)
    appender.acknowledge()
    wait_until(lambda: checkpoints.path_of(appender.layout, event.seq).exists() or appender.trouble, what="the snapshot")
    return event.seq


def alarms(session: Session) -> list[str]:
    return session.state().alarms


def set_value(appender: Appender, path: str, value: object) -> None:
    appender.emit("StateChanged", p.StateChanged(path, as_raw(value)), task_id="t")


def test_snapshots_that_wait_are_counted_until_they_are_written(
    session: Session, me: Holder, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "SNAPSHOT_BYTES", 35_000)
    begun, written = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        written.wait(30)

    disk.do("before checkpoint rename", hold)
    appender = session.append(me)
    set_value(appender, "values.large", "x" * 20_000)
    appender.checkpoint("time")
    assert begun.wait(30), "the first is being written, and waits no more"
    behind = []
    for _ in range(2):
        appender.checkpoint("time")
        behind.append(appender.snapshots_behind)
    assert behind == [False, True]
    written.set()
    wait_until(lambda: not appender.snapshots_behind, what="the snapshots to be written")
    appender.close()


def test_a_hundred_checkpoints_within_one_second_are_distinct_and_all_load(session: Session, me: Holder) -> None:
    appender = session.append(me)
    for n in range(100):
        appender.checkpoint("manual", f"label {n}")
    appender.close()
    seqs = checkpoints.sequence(session.layout)
    assert len(seqs) == 100
    assert [checkpoints.load(session.layout, seq)[0].seq for seq in seqs] == seqs
    assert [i.label for i in session.checkpoints()] == [f"label {n}" for n in range(100)]
    assert {i.at for i in session.checkpoints()} == {"2026-01-01T00:00:00.000Z"}


def test_the_corrupt_newest_is_passed_over_for_an_older_one_and_the_state_is_the_same(session: Session, me: Holder) -> None:
    appender = session.append(me)
    for n in range(4):
        activities(appender, 5)
        snapshot(appender, f"{n}")
    wanted = states.encode(appender.state)
    appender.close()
    seqs = checkpoints.sequence(session.layout)
    checkpoints.path_of(session.layout, seqs[3]).write_bytes(b"")
    checkpoints.path_of(session.layout, seqs[2]).write_bytes(b"rubbish")
    loaded = session.loaded()
    assert (loaded.checkpoint, loaded.refused) == (seqs[1], [seqs[3], seqs[2]])
    assert states.encode(loaded.state) == wanted


def test_a_compressed_file_cut_anywhere_is_detected(session: Session, me: Holder) -> None:
    appender = session.append(me)
    activities(appender, 20)
    seq = snapshot(appender)
    appender.close()
    path = checkpoints.path_of(session.layout, seq)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(DamageError):
            checkpoints.load(session.layout, seq)


def test_every_flipped_byte_is_detected_or_changes_nothing(session: Session, me: Holder) -> None:
    appender = session.append(me)
    activities(appender, 20)
    seq = snapshot(appender)
    wanted = states.encode(checkpoints.load(session.layout, seq)[0])
    appender.close()
    path = checkpoints.path_of(session.layout, seq)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x04]) + whole[at + 1 :])
        try:
            found = checkpoints.load(session.layout, seq)[0]
        except (DamageError, NewerFormat):
            continue
        assert states.encode(found) == wanted, at


def test_a_half_written_snapshot_is_invisible_and_cleaned_away(session: Session, me: Holder) -> None:
    session.layout.checkpoints.mkdir()
    half = session.layout.checkpoints / "1.json.zst.77-88.tmp"
    half.write_bytes(b"half")
    assert session.checkpoints() == []
    assert session.loaded().checkpoint is None
    session.append(me).close()
    assert not half.exists()


def test_a_snapshot_that_the_disk_refuses_leaves_nothing_and_stops_nothing(
    session: Session, me: Holder, disk: FaultyDisk
) -> None:
    appender = session.append(me)
    disk.fail("before checkpoint rename")
    appender.checkpoint("manual", "lost")
    appender.acknowledge()
    wait_until(lambda: appender.trouble is not None, what="the report")
    activities(appender, 1)
    appender.close()
    assert list(session.layout.checkpoints.iterdir()) == []
    assert session.state().checkpoint is not None, "the event is there, only its snapshot is not"


def test_snapshots_that_are_never_written_are_one_alarm_in_the_log(session: Session, me: Holder, disk: FaultyDisk) -> None:
    appender = session.append(me)
    disk.fail("before checkpoint rename", times=99, code=errno.EACCES)
    for n in range(5):
        appender.checkpoint("manual", f"{n}")
        appender.acknowledge()
    appender.close(rest=True)
    assert alarms(session) == [
        "snapshot: the snapshot of a checkpoint could not be written: Permission denied; the log holds the same, and a resume "
        "reads more of it"
    ]
    assert list(session.layout.checkpoints.iterdir()) == []


def test_sealing_that_fails_is_told_and_the_log_is_whole(session: Session, me: Holder, disk: FaultyDisk) -> None:
    appender = session.append(me)
    activities(appender, 3)
    disk.fail("before seal rename", times=9, code=errno.EIO)
    appender.close(rest=True)
    assert session.layout.segments() == []
    assert alarms(session) == ["sealing: the log could not be sealed: Input/output error; its journals stay and hold the same"]
    session.append(me).close(rest=True)
    assert len(alarms(session)) == 1, "the next holder finds it told"
    disk.mend()
    session.append(me).close(rest=True)
    assert [(s.first, s.last) for s in session.layout.segments()] == [(1, session.state().seq)]


def test_a_setback_of_a_disk_that_refuses_the_log_is_not_told_beside_it(
    session: Session, me: Holder, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scribe, "WINDOW", 600.0)
    appender = session.append(me)
    disk.fail("before checkpoint rename", times=2)
    appender.checkpoint("manual", "before the log is refused")
    appender.acknowledge()
    wait_until(lambda: isinstance(appender.trouble, OSError), what="the report")
    disk.fail("before journal write")
    set_value(appender, "v", 1)
    with pytest.raises(PersistenceError):
        appender.acknowledge()
    assert appender.setbacks.take() == []
    appender.acknowledge()
    appender.checkpoint("manual", "after")
    appender.close()
    assert len(alarms(session)) == 1, "what still fails once the log is taken again is told then"


def test_no_snapshot_of_an_event_that_is_not_durable(session: Session, me: Holder, disk: FaultyDisk) -> None:
    appender = session.append(me)
    appender.durability = "exit"
    disk.fail("before journal write", times=50)
    appender.checkpoint("manual", "too early")
    wait_until(lambda: appender.trouble is not None, what="the report")
    assert checkpoints.sequence(session.layout) == []
    appender.abandon()
    assert session.state().seq == 1


def test_a_newer_form_is_refused_with_its_direction_and_an_older_one_used(session: Session, me: Holder) -> None:
    appender = session.append(me)
    old = snapshot(appender, "old")
    new = snapshot(appender, "new")
    appender.close()
    path = checkpoints.path_of(session.layout, new)
    body = msgspec.json.decode(zstandard.ZstdDecompressor().decompress(path.read_bytes()))
    body |= {"format": 2, "state": {"wholly": "different"}, "seq": "x"}
    path.write_bytes(zstandard.ZstdCompressor().compress(msgspec.json.encode(body)))
    with pytest.raises(NewerFormat, match=r"written by a newer version \(format 2, this one reads 1\)"):
        checkpoints.load(session.layout, new)
    assert session.loaded().checkpoint == old


def test_a_change_of_one_percent_writes_less_than_five_percent(session: Session, me: Holder) -> None:
    appender = session.append(me)
    rng = random.Random(1)
    for n in range(1000):
        set_value(appender, f"v{n}", rng.randbytes(40).hex())
    full = checkpoints.path_of(session.layout, snapshot(appender, "full")).stat().st_size
    for n in range(10):
        set_value(appender, f"v{n * 97}", rng.randbytes(40).hex())
    appender.keep_last = 0
    seq = snapshot(appender, "changed")
    small = checkpoints.path_of(session.layout, seq).stat().st_size
    assert checkpoints.load(session.layout, seq)[1].base is not None
    assert small < 0.05 * full, (small, full)
    assert states.encode(checkpoints.load(session.layout, seq)[0]) == states.encode(session.state(seq))
    appender.close()


@pytest.mark.parametrize("seed", range(3))
def test_differential_and_full_snapshots_restore_to_the_state_that_was_live(session: Session, me: Holder, seed: int) -> None:
    appender = session.append(me)
    live: dict[int, bytes] = {}
    for n, item in enumerate(itertools.islice(History(random.Random(seed)), 1, 200)):
        emit(appender, item)
        if n % 8 == 0:
            event = appender.checkpoint("manual", f"{n}")
            live[event.seq] = states.encode(appender.state)
    appender.close()
    found = session.checkpoints()
    assert [i.seq for i in found] == list(live)
    assert all(i.complete for i in found), [i.problem for i in found]
    assert len({i.base is None for i in found}) == 2, "both kinds were written"
    for seq, body in live.items():
        assert states.encode(checkpoints.load(session.layout, seq)[0]) == body
        assert hashlib.sha256(body).hexdigest() == checkpoints.load(session.layout, seq)[1].sha256


def test_pruning_keeps_the_named_the_newest_and_every_base(session: Session, me: Holder) -> None:
    appender = session.append(me)
    for n in range(400):
        set_value(appender, f"v{n}", n)
    kept_by_name = []
    for n in range(30):
        set_value(appender, "v0", f"changed {n}")
        seq = snapshot(appender, "stage" if n in (9, 17) else "", "time")
        kept_by_name += [seq] if n in (9, 17) else []
    appender.close()
    found = session.checkpoints()
    assert all(i.complete for i in found)
    unnamed = [i.seq for i in found if not i.label]
    bases = {i.base for i in found if i.base is not None}
    assert set(kept_by_name) <= {i.seq for i in found}
    assert bases <= {i.seq for i in found}
    assert len(set(unnamed) - bases) <= checkpoints.KEEP_UNNAMED
    assert max(unnamed) == session.state().seq


def test_one_more_snapshot_opens_its_base_however_many_there_are(
    session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    appender = session.append(me)
    for n in range(200):
        set_value(appender, f"v{n}", n)
    for n in range(30):
        snapshot(appender, f"{n}")
    appender.close()
    opened: Counter[int] = Counter()
    real = Path.read_bytes

    def counted(path: Path) -> bytes:
        if path.parent == session.layout.checkpoints:
            opened[int(path.name.partition(".")[0])] += 1
        return real(path)

    appender = session.append(me)
    monkeypatch.setattr(Path, "read_bytes", counted)
    for n in range(11):
        snapshot(appender, f"again {n}")
    appender.close()
    monkeypatch.undo()
    (base, times), *others = opened.most_common()
    assert {i.base for i in session.checkpoints()} == {None, base}
    assert times <= 2 + 11
    assert max(times for _, times in others) <= 2, (
        "a new holder looks at what it finds, for a base and to prune, and never again"
    )
    assert len(checkpoints.sequence(session.layout)) == 41


def test_what_another_process_removed_is_not_counted_as_there(session: Session, me: Holder) -> None:
    appender = session.append(me)
    seqs = []
    for n in range(checkpoints.KEEP_UNNAMED):
        set_value(appender, "v", "x" * 1000 * (n + 1))  # each a whole one
        seqs.append(snapshot(appender, trigger="time"))
    for seq in seqs[1:]:
        checkpoints.path_of(session.layout, seq).unlink()
    set_value(appender, "v", "y" * 9000)
    last = snapshot(appender, trigger="time")
    appender.close()
    assert checkpoints.sequence(session.layout) == [seqs[0], last], "the oldest is one of the newest few that are there"
    assert all(i.complete for i in session.checkpoints())


def test_a_snapshot_carries_the_last_events_before_it_and_no_more_than_asked(session: Session, me: Holder) -> None:
    appender = session.append(me)
    activities(appender, 80)
    appender.keep_last = 100
    seq = snapshot(appender)
    appender.close()
    last = [msgspec.json.decode(body)["seq"] for body in checkpoints.load(session.layout, seq)[1].last_events]
    assert last == list(range(seq - 100, seq))
    assert len(list(session.events())) == seq, "the whole log remains"


def test_the_state_is_restored_in_full_without_the_events_before_it(session: Session, me: Holder) -> None:
    appender = session.append(me)
    activities(appender, 10)
    seq = snapshot(appender)
    wanted = states.encode(appender.state)
    appender.close()
    for journal in session.layout.journals():
        journal.path.write_bytes(b"")
    assert states.encode(checkpoints.load(session.layout, seq)[0]) == wanted
    assert next(iter(Reader(session.layout).events()), None) is None
