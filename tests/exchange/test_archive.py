"""A session opens elsewhere as it was, in replay; an archive that holds what none may is refused as a whole."""

from __future__ import annotations

import hashlib
import json
import stat
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ipyagent_sessions import codec, events
from ipyagent_sessions import payloads as p
from ipyagent_sessions import state as states
from ipyagent_sessions.errors import UPDATE, DamageError, IpyagentError, NewerFormat, UsageError
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.exchange import archive, pack, unpack
from ipyagent_sessions.log.format import line_of
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.run import control
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.verify import whole

Members = dict[str, bytes]


@pytest.fixture
def packed(child: Session, tmp_path: Path) -> Path:
    path = tmp_path / "a.ipyagent.zip"
    pack.export(child, path)
    return path


def contents(path: Path) -> Members:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def told(members: Members) -> Members:
    """The members with a manifest that says what they are."""
    manifest = json.loads(members["manifest.json"])
    manifest["members"] = {
        name: {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}
        for name, body in members.items()
        if name != "manifest.json"
    }
    return {**members, "manifest.json": json.dumps(manifest).encode()}


def write(path: Path, members: Members) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in members.items():
            file.writestr(name, body)
    return path


def nothing_happened(store: Store) -> bool:
    return not store.sessions_folder.exists() or list(store.sessions_folder.iterdir()) == []


def test_a_session_opens_in_another_store_as_it_was(child: Session, packed: Path, other: Store) -> None:
    done = unpack.bring_in(other, packed)
    there = other.session(child.id)
    assert [events.encode(e) for e in there.events()] == [events.encode(e) for e in child.events()]
    assert states.encode(there.state()) == states.encode(child.state())
    assert there.summary().title == child.summary().title
    assert done.new == [child.parent.id if child.parent else "", child.id]
    names = [path.name for path in child.parent.layout.blobs.iterdir()] if child.parent else []
    assert len(names) == 2, "a part of a payload, and what a file held before it was changed"
    assert [there.blobs.read(name) for name in names] == [child.blobs.read(name) for name in names]
    report = whole.store(other)
    assert report.findings == []
    assert sum(row["n"] for row in other.sql("select count(*) as n from events").rows()) == child.last_seq()


def test_the_same_session_gives_the_same_bytes(child: Session, packed: Path, tmp_path: Path) -> None:
    pack.export(child, tmp_path / "b.zip")
    assert (tmp_path / "b.zip").read_bytes() == packed.read_bytes()


def test_an_ancestor_gives_only_the_part_that_is_needed(store: Store, parent: Session, other: Store, tmp_path: Path) -> None:
    early = next(e.seq for e in reversed(list(parent.events())) if e.event_type == "TaskQueued") - 1
    pack.export(parent.fork(early), tmp_path / "a.zip")
    unpack.bring_in(other, tmp_path / "a.zip")
    assert other.session(parent.id).last_seq() == early


def test_what_is_here_already_is_not_imported_again(packed: Path, store: Store, other: Store) -> None:
    first = unpack.bring_in(other, packed)
    again = unpack.bring_in(other, packed)
    assert (again.new, again.known) == ([], first.new)
    assert unpack.bring_in(store, packed).new == [], "nor where it was made"


def test_an_import_that_knows_the_parent_adds_the_fork_only(
    parent: Session, packed: Path, other: Store, tmp_path: Path
) -> None:
    pack.export(parent, tmp_path / "p.zip")
    unpack.bring_in(other, tmp_path / "p.zip")
    assert unpack.bring_in(other, packed).known == [parent.id]


def test_an_id_that_is_here_with_other_content_is_refused(
    packed: Path, child: Session, store: Store, me: Holder, tmp_path: Path
) -> None:
    members = contents(packed)
    name = f"s/{child.id}/events.jsonl"
    lines = members[name].splitlines(keepends=True)
    event = events.decode(lines[-1])
    lines[-1] = line_of(msgspec.structs.replace(event, actor="user:mallory"))
    forged = write(tmp_path / "f.zip", told({**members, name: b"".join(lines)}))
    with pytest.raises(UsageError, match=f"{child.id} is here already, with other content from event {event.seq}"):
        unpack.bring_in(store, forged)


def test_an_import_is_in_replay_and_a_fork_of_it_goes_on(packed: Path, child: Session, other: Store, me: Holder) -> None:
    unpack.bring_in(other, packed)
    there = other.session(child.id)
    assert not there.native
    with pytest.raises(UsageError, match="in replay"):
        there.append(me)
    with pytest.raises(UsageError, match="in replay"):
        control.request(there, "cancel", actor="user:me")
    assert list(there.layout.root.glob("inbox/*")) == []
    forked = there.fork()
    forked.append(me).close()
    assert not forked.native, "nothing that it inherited is unpickled"


def test_an_archive_that_claims_to_be_of_this_store_is_foreign_all_the_same(
    packed: Path, other: Store, tmp_path: Path
) -> None:
    members = contents(packed)
    for name in [n for n in members if n.endswith("session.json")]:
        members[name] = json.dumps({**json.loads(members[name]), "store": other.id}).encode()
    done = unpack.bring_in(other, write(tmp_path / "f.zip", told(members)))
    assert not any(other.session(i).native for i in done.new)


def test_the_result_of_an_import_is_never_unpickled(session: Session, me: Holder, other: Store, tmp_path: Path) -> None:
    appender = session.append(me)
    appender.emit(
        "ActivityCompleted",
        p.ActivityCompleted("f", result=msgspec.Raw(codec.dumps(object, pickle=True))),
        task_id="t",
        activity_id="/f:1",
    )
    appender.close()
    pack.export(session, tmp_path / "a.zip")
    with pytest.raises(UsageError, match="holds a pickled value"):
        unpack.bring_in(other, tmp_path / "a.zip")
    assert nothing_happened(other)


@pytest.mark.parametrize("text", [b'{"\\u0024":"p\\u0069ckle","v":""}', b'[{"a":[{"$":"pickle","v":""}]}]'])
def test_a_pickle_in_disguise_is_refused(session: Session, me: Holder, other: Store, tmp_path: Path, text: bytes) -> None:
    appender = session.append(me)
    blobs: dict[str, bytes] = {}
    body = text.ljust(40_000)
    _, name = appender.put(body, blobs)
    appender.emit("ActivityCompleted", p.ActivityCompleted("f", result_blob=name), activity_id="/f:1", blobs=blobs)
    appender.close()
    pack.export(session, tmp_path / "a.zip")
    with pytest.raises(UsageError, match="pickled"):
        unpack.bring_in(other, tmp_path / "a.zip")


def _with(name: str, **more: Any) -> Callable[[Path, Members], None]:
    def make(path: Path, members: Members) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for known, body in members.items():
                file.writestr(known, body)
            info = zipfile.ZipInfo("x")
            info.filename = name
            info.external_attr = more.get("mode", 0) << 16
            file.writestr(info, more.get("body", b"x"))

    return make


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_with("../../evil"), "leads out of the folder"),
        (_with("s/aa/../../../evil"), "leads out of the folder"),
        (_with("s\\..\\..\\evil"), "leads out of the folder"),
        (_with("/etc/evil"), "an absolute name"),
        (_with("C:\\evil"), "an absolute name"),
        (_with("\\\\host\\evil"), "an absolute name"),
        (_with("s/aa/session.json", mode=stat.S_IFLNK | 0o777, body=b"/etc/passwd"), "a symbolic link"),
        (_with("s/aa/session.json", mode=stat.S_IFCHR | 0o666), "not a plain file"),
        (_with("s/aa/session.json", mode=stat.S_IFIFO | 0o666), "not a plain file"),
        (_with("s/aa/summary.json"), "does not belong into it"),
        (_with("s/aa/blobs/" + "g" * 64), "does not belong into it"),
        (_with("s/AA/session.json"), "does not belong into it"),
        (_with("s/aa/session.json"), "not in its manifest"),
        (_with("manifest.json"), "is in it twice"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_no_archive_may_hold_refuses_it(
    packed: Path, other: Store, tmp_path: Path, make: Callable[[Path, Members], None], said: str
) -> None:
    make(tmp_path / "evil.zip", contents(packed))
    before = sorted(p for p in tmp_path.rglob("*"))
    with pytest.raises(IpyagentError, match=said) as raised:
        unpack.bring_in(other, tmp_path / "evil.zip")
    assert raised.value.hint
    assert nothing_happened(other)
    assert sorted(p for p in tmp_path.rglob("*")) == before, "nothing appeared anywhere"


def test_a_zip_bomb_is_refused_before_it_is_unpacked(
    packed: Path, other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "SMALL", 1000)
    members = contents(packed)
    name = next(n for n in members if "/blobs/" in n)
    write(tmp_path / "b.zip", told({**members, name: b"0" * 30_000_000}))
    with pytest.raises(UsageError, match="times as much"):
        unpack.bring_in(other, tmp_path / "b.zip")
    monkeypatch.setattr(archive, "LARGEST", 1_000_000)
    with pytest.raises(UsageError, match="would unpack to"):
        unpack.bring_in(other, tmp_path / "b.zip")
    assert nothing_happened(other)


def test_sizes_that_lie_do_not_unpack_to_more(packed: Path, other: Store, tmp_path: Path) -> None:
    members = contents(packed)
    name = next(n for n in members if "/blobs/" in n)
    path = write(tmp_path / "l.zip", {**members, name: b"0" * 5_000_000})  # the manifest says 40,002
    with pytest.raises(DamageError, match="does not match its checksum"):
        unpack.bring_in(other, path)
    assert nothing_happened(other)


@pytest.mark.parametrize("part", ["events.jsonl", "session.json", "blobs/"])
def test_a_forged_member_is_found_by_the_manifest(packed: Path, other: Store, tmp_path: Path, part: str) -> None:
    members = contents(packed)
    name = [n for n in members if part in n][-1]
    body = bytearray(members[name])
    body[len(body) // 2] ^= 1
    with pytest.raises(DamageError, match=r"does not match its checksum|does not verify"):
        unpack.bring_in(other, write(tmp_path / "f.zip", {**members, name: bytes(body)}))
    assert nothing_happened(other)


def test_a_forged_manifest_does_not_help(packed: Path, child: Session, other: Store, tmp_path: Path) -> None:
    members = contents(packed)
    blob = next(n for n in members if "/blobs/" in n)
    with pytest.raises(DamageError, match="not what its name says"):
        unpack.bring_in(other, write(tmp_path / "1.zip", told({**members, blob: b"forged"})))
    log = f"s/{child.id}/events.jsonl"
    lines = members[log].splitlines(keepends=True)
    cut = told({**members, log: b"".join([*lines[:2], *lines[3:]])})
    with pytest.raises(DamageError, match="does not verify"):
        unpack.bring_in(other, write(tmp_path / "2.zip", cut))
    changed = told({**members, log: members[log].replace(b'"work"', b'"wark"', 1)})
    with pytest.raises(DamageError, match="does not verify"):
        unpack.bring_in(other, write(tmp_path / "3.zip", changed))
    short = told({**members, log: b"".join(lines[:-1])})
    with pytest.raises(DamageError, match="ends at event"):
        unpack.bring_in(other, write(tmp_path / "4.zip", short))
    assert nothing_happened(other)


def test_a_parent_that_is_not_the_one_it_was_forked_from_is_refused(
    packed: Path, parent: Session, other: Store, tmp_path: Path
) -> None:
    members = contents(packed)
    log = f"s/{parent.id}/events.jsonl"
    lines = members[log].splitlines(keepends=True)
    lines[-1] = line_of(msgspec.structs.replace(events.decode(lines[-1]), actor="user:mallory"))
    with pytest.raises(DamageError, match="does not fit its lineage"):
        unpack.bring_in(other, write(tmp_path / "f.zip", told({**members, log: b"".join(lines)})))
    assert nothing_happened(other)


def test_an_archive_of_a_newer_version_is_refused_with_the_direction(packed: Path, other: Store, tmp_path: Path) -> None:
    members = contents(packed)
    manifest = json.dumps({**json.loads(members["manifest.json"]), "format": 99, "members": "in another form"}).encode()
    with pytest.raises(NewerFormat, match="format 99, this version reads up to 1") as raised:
        unpack.bring_in(other, write(tmp_path / "n.zip", {**members, "manifest.json": manifest}))
    assert raised.value.hint == UPDATE


def test_an_event_of_a_newer_version_is_refused_with_the_direction(
    session: Session, me: Holder, other: Store, tmp_path: Path
) -> None:
    pack.export(session, tmp_path / "a.zip")
    members = contents(tmp_path / "a.zip")
    log = f"s/{session.id}/events.jsonl"
    newer = events.Event(2, "TaskTeleported", "2026-01-01T00:00:00.000Z", payload=as_raw({}), agent_version="ipyagent-9")
    members[log] += line_of(newer)
    manifest = json.loads(members["manifest.json"])
    manifest["lineage"][0]["last"] = 2
    members["manifest.json"] = json.dumps(manifest).encode()
    with pytest.raises(NewerFormat, match="TaskTeleported") as raised:
        unpack.bring_in(other, write(tmp_path / "n.zip", told(members)))
    assert "ipyagent-9" in raised.value.hint
    assert nothing_happened(other)


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("payload", "taken"),
    [
        (b'{"text":"' + b"x" * 20_000_000 + b'"}', True),
        (b'{"text":"a\\u0000b"}', True),
        (b'{"text":"\\ud800"}', False),
        (b'{"text":"raw \x00"}', False),
        (b'{"text":"\xff"}', False),
        (b'{"deep":' + b"[" * 900 + b"]" * 900 + b"}", True),
        (b'{"deep":' + DEEP + b"}", False),
        (b"[1, 2", False),
    ],
    ids=["20 MB", "NUL", "surrogate", "raw NUL", "no UTF-8", "nested", "nested too deep", "no JSON"],
)
def test_a_line_that_few_readers_stand_is_taken_as_it_is_or_refused(
    session: Session, me: Holder, other: Store, tmp_path: Path, payload: bytes, taken: bool
) -> None:
    pack.export(session, tmp_path / "a.zip")
    members = contents(tmp_path / "a.zip")
    log = f"s/{session.id}/events.jsonl"
    event = events.Event(2, "Noted", "2026-01-01T00:00:00.000Z", payload=msgspec.Raw(payload), ignorable=True)
    members[log] += line_of(event)
    manifest = json.loads(members["manifest.json"])
    manifest["lineage"][0]["last"] = 2
    members["manifest.json"] = json.dumps(manifest).encode()
    path = tmp_path / "h.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:  # what is packed too well is refused before it is looked at
        for name, body in told(members).items():
            file.writestr(name, body)
    if not taken:
        with pytest.raises(IpyagentError, match=r"does not verify|cannot be read"):
            unpack.bring_in(other, path)
        assert nothing_happened(other)
        return
    done = unpack.bring_in(other, path)
    assert not whole.store(other).damaged
    assert len(list(other.session(done.session_id).events())) == 2
    assert other.sql("select count(*) as n from events").rows() == [{"n": 2}]


def test_a_lineage_that_goes_round_or_repeats_itself_is_refused(packed: Path, other: Store, tmp_path: Path) -> None:
    members = contents(packed)
    manifest = json.loads(members["manifest.json"])
    first, last = manifest["lineage"]
    for lineage in ([first, last, first, last], [last, first, last], [last], [first, first, last], []):
        changed = {**members, "manifest.json": json.dumps({**manifest, "lineage": lineage}).encode()}
        with pytest.raises(IpyagentError):
            unpack.bring_in(other, write(tmp_path / "r.zip", told(changed)))
        assert nothing_happened(other)


@pytest.mark.parametrize("body", [b"", b"PK\x03\x04", b"nothing of the kind"])
def test_what_is_no_archive_is_refused_in_one_line(other: Store, tmp_path: Path, body: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(body)
    with pytest.raises(UsageError, match="not an archive"):
        unpack.bring_in(other, tmp_path / "a.zip")
    with pytest.raises(UsageError, match="there is no file"):
        unpack.bring_in(other, tmp_path / "b.zip")
    with pytest.raises(UsageError, match="is a folder"):
        unpack.bring_in(other, tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="a file without an end, of Unix")
def test_what_has_no_end_is_refused_and_not_read(other: Store) -> None:
    with pytest.raises(UsageError, match="/dev/zero is no regular file"):
        unpack.bring_in(other, Path("/dev/zero"))


def test_any_cut_of_an_archive_is_refused(packed: Path, other: Store, tmp_path: Path) -> None:
    body = packed.read_bytes()
    for part in range(1, 20):
        (tmp_path / "c.zip").write_bytes(body[: len(body) * part // 20])
        with pytest.raises(IpyagentError):
            unpack.bring_in(other, tmp_path / "c.zip")
    assert nothing_happened(other)


def test_a_damaged_session_is_not_exported_as_if_it_were_whole(parent: Session, tmp_path: Path) -> None:
    blob = next(parent.layout.blobs.iterdir())
    body = blob.read_bytes()
    blob.unlink()
    with pytest.raises(DamageError, match=r"blob .* is missing"):
        pack.export(parent, tmp_path / "a.zip")
    blob.write_bytes(body)
    segment = parent.layout.segments()[0].path
    segment.write_bytes(segment.read_bytes()[:-100])
    for journal in parent.layout.journals()[:-1]:
        journal.path.unlink()
    with pytest.raises(DamageError, match="damaged or missing"):
        pack.export(parent, tmp_path / "a.zip")
    assert not list(tmp_path.glob("a.zip*"))


def test_a_disk_that_refuses_leaves_nothing_behind(
    packed: Path, store: Store, child: Session, other: Store, tmp_path: Path
) -> None:
    disk: Any = other.disk
    disk.fail("before import rename", at=2)
    with pytest.raises(OSError, match="No space"):
        unpack.bring_in(other, packed)
    assert not (other.sessions_folder / child.id).exists()
    assert [p.name for p in other.sessions_folder.iterdir() if p.name.startswith(".")] == []
    assert unpack.bring_in(other, packed).new == [child.id], "the ancestor is there, complete, and the rest follows"
