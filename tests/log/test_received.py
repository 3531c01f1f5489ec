"""A store that came from elsewhere: names in its files lead nowhere outside, and one bad session costs the others nothing."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ipyagent_sessions.errors import DamageError, NotFound
from ipyagent_sessions.log import blobs
from ipyagent_sessions.log.blobs import Blobs
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FaultyDisk


def with_parent(session: Session, parent: dict[str, Any]) -> Session:
    """The session, its header now naming that parent; as it is opened anew."""
    header = json.loads(session.layout.header.read_bytes())
    session.layout.header.write_text(json.dumps({**header, "parent": parent}))
    session.layout.summary.unlink(missing_ok=True)
    return Session(session.place, session.id)


@pytest.mark.parametrize("wrong", ["../other", "", "a", "A1", "a1\n", "/etc", "x" * 41, "a b"])
def test_a_parent_that_is_no_id_is_damage(store: Store, wrong: str) -> None:
    child = with_parent(store.create(), {"session": wrong, "seq": 1, "hash": "h"})
    with pytest.raises(DamageError, match=r"session\.json is damaged"):
        child.state()


@pytest.mark.parametrize("seq", [0, -5])
def test_a_parent_without_a_first_event_is_damage(store: Store, seq: int) -> None:
    child = with_parent(store.create(), {"session": store.create().id, "seq": seq, "hash": "h"})
    with pytest.raises(DamageError):
        child.state()


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_session_that_is_its_own_ancestor_is_damage_and_nothing_hangs(store: Store, length: int) -> None:
    made = [store.create(title="good"), *(store.create() for _ in range(length))]
    ring = made[1:]
    for n, session in enumerate(ring):
        with_parent(session, {"session": ring[(n + 1) % length].id, "seq": 5, "hash": "h"})
    for session in ring:
        for read in (
            lambda s: s.blobs,
            lambda s: s.state(),
            lambda s: list(s.events()),
            lambda s: s.fork(3),
        ):
            with pytest.raises(DamageError, match="is its own ancestor"):
                read(Session(store, session.id))
    assert sorted(x.state for x in store.sessions()) == ["damaged"] * length + ["empty"]
    assert store.children(made[0].id) == []


def test_more_ancestors_than_can_be_read_are_damage(store: Store) -> None:
    line = [store.create() for _ in range(203)]
    for n, session in enumerate(line[1:]):
        with_parent(session, {"session": line[n].id, "seq": 5, "hash": "h"})
    with pytest.raises(DamageError, match="more than 200 ancestors"):
        Session(store, line[-1].id).state()


@pytest.mark.parametrize("wrong", ["..", "../a1", "a/b", "", "A1"])
def test_what_is_no_id_is_no_session(store: Store, wrong: str) -> None:
    store.create()
    with pytest.raises(NotFound):
        store.session(wrong)
    with pytest.raises(NotFound):
        store.find(wrong)


def test_a_folder_that_is_no_session_is_not_listed(store: Store) -> None:
    session = store.create()
    for name in ("With Space", ".hidden", "a-b", "x" * 41):
        (store.sessions_folder / name).mkdir()
    assert store.session_ids() == [session.id]


@pytest.mark.parametrize("name", ["../../store.json", "/etc/passwd", "", "0" * 63, "g" * 64, "0" * 64 + "\n"])
def test_a_blob_name_leads_nowhere_outside(session: Session, name: str) -> None:
    with pytest.raises(DamageError, match="is not the name of a blob"):
        session.blobs.read(name)


def test_the_folder_of_the_first_blob_is_durable_before_the_blob(
    session: Session, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(blobs, "sync_folder", synced.append)
    for data in (b"one", b"two"):
        session.blobs.write(Blobs.name(data), data, disk)
    assert synced == [session.layout.root]


@pytest.mark.parametrize(
    "summary",
    ['{"session_id":"%s","seq":1}', '{"session_id":"other","seq":1,"updated_at":"2026-01-01T00:00:00.000Z"}', "[]", "\0"],
)
def test_a_summary_that_says_too_little_is_made_anew(store: Store, summary: str) -> None:
    session = store.create(title="kept")
    session.layout.summary.write_text(summary.replace("%s", session.id))
    [listed] = store.sessions()
    assert listed.summary is not None
    assert (listed.summary.title, listed.state) == ("kept", "empty")
    assert listed.summary.updated_at


def test_whatever_lies_in_one_folder_the_others_are_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = store.create(title="good"), store.create()
    real = Session.summary

    def breaks(self: Session) -> Any:
        if self.id == bad.id:
            raise RecursionError("too deep")
        return real(self)

    monkeypatch.setattr(Session, "summary", breaks)
    assert {x.session_id: x.state for x in store.sessions()} == {good.id: "empty", bad.id: "damaged"}


def test_a_session_that_could_not_be_made_leaves_nothing(store: Store, disk: FaultyDisk) -> None:
    disk.fail("before header rename")
    with pytest.raises(OSError, match="No space"):
        store.create()
    assert list(store.sessions_folder.iterdir()) == []


def test_drafts_of_dead_processes_are_swept_and_fresh_ones_are_left(store: Store) -> None:
    session = store.create()
    for name in (".dead1", ".fresh1", ".not-a-draft"):
        (store.sessions_folder / name).mkdir()
        (store.sessions_folder / name / "session.json").touch()
    before = time.time() - 2 * 3600
    for name in (".dead1", ".not-a-draft", session.id):
        os.utime(store.sessions_folder / name, (before, before))
    Store(store.root)
    assert sorted(p.name for p in store.sessions_folder.iterdir()) == sorted([".fresh1", ".not-a-draft", session.id])
