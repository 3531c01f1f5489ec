"""Controls wait in the inbox until their outcome is logged; whatever lies there never stops anybody."""

from __future__ import annotations

import msgspec
import pytest

from ipyagent_sessions.log import inbox
from ipyagent_sessions.log.inbox import Control
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import FaultyDisk


def control(control_id: str, at: str = "2026-01-01T00:00:00.000Z") -> Control:
    return Control(control_id, "pause", "user:anna@cli", at, "t", ["running"], {"why": "lunch \u2028"})


def test_a_control_comes_out_as_it_was_put_and_stays_until_it_is_removed(session: Session, disk: FaultyDisk) -> None:
    inbox.put(session.layout, control("a"), disk)
    assert inbox.waiting(session.layout) == inbox.waiting(session.layout) == [control("a")]
    inbox.remove(session.layout, "a")
    inbox.remove(session.layout, "a")
    assert inbox.waiting(session.layout) == []


def test_the_oldest_comes_first(session: Session, disk: FaultyDisk) -> None:
    for control_id, at in (("b", "2026-01-02"), ("c", "2026-01-01"), ("a", "2026-01-02")):
        inbox.put(session.layout, control(control_id, at), disk)
    assert [c.id for c in inbox.waiting(session.layout)] == ["c", "a", "b"]


def test_no_inbox_is_an_empty_one(session: Session) -> None:
    assert inbox.waiting(session.layout) == []


@pytest.mark.parametrize("body", [b"", b"{", b"\0" * 40, b"[]", b'{"id":5}', b'{"id":"x"}', b"\xff\xfe{}"])
def test_a_control_that_cannot_be_read_is_set_aside_and_the_others_are_taken(
    session: Session, disk: FaultyDisk, body: bytes
) -> None:
    inbox.put(session.layout, control("good"), disk)
    (session.layout.inbox / "bad.json").write_bytes(body)
    assert [c.id for c in inbox.waiting(session.layout)] == ["good"]
    assert (session.layout.damaged / "bad.json").read_bytes() == body
    assert [c.id for c in inbox.waiting(session.layout)] == ["good"]


def test_a_control_with_a_byte_order_mark_and_crlf_is_answered(session: Session, disk: FaultyDisk) -> None:
    inbox.put(session.layout, control("a"), disk)
    path = session.layout.inbox / "a.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b",", b",\r\n") + b"\r\n")
    assert inbox.waiting(session.layout) == [control("a")]


def test_a_half_written_control_is_not_seen(session: Session, disk: FaultyDisk) -> None:
    disk.fail("before control rename")
    with pytest.raises(OSError, match="No space"):
        inbox.put(session.layout, control("a"), disk)
    assert inbox.waiting(session.layout) == []
    assert list(session.layout.inbox.iterdir()) == []


def test_an_id_never_names_a_place_outside_the_inbox(session: Session, disk: FaultyDisk) -> None:
    victim = session.place.root / "victim.json"
    victim.write_text("{}")
    inbox.put(session.layout, control("good"), disk)
    (session.layout.inbox / "bad.json").write_bytes(msgspec.json.encode(control("../../../victim")))
    assert [c.id for c in inbox.waiting(session.layout)] == ["good"]
    assert (session.layout.damaged / "bad.json").exists()
    inbox.remove(session.layout, "../../../victim")
    inbox.set_aside(session.layout, "../../../victim")
    assert victim.exists()


def test_a_control_under_anothers_name_is_set_aside(session: Session, disk: FaultyDisk) -> None:
    inbox.put(session.layout, control("good"), disk)
    (session.layout.inbox / "other.json").write_bytes(msgspec.json.encode(control("good")))
    assert [c.id for c in inbox.waiting(session.layout)] == ["good"]
    assert (session.layout.damaged / "other.json").exists()


def test_what_is_no_file_or_too_large_or_too_deep_is_set_aside(session: Session, disk: FaultyDisk) -> None:
    inbox.put(session.layout, control("good"), disk)
    (session.layout.inbox / "folder.json").mkdir()
    (session.layout.inbox / "link.json").symlink_to(session.layout.header)
    (session.layout.inbox / "large.json").write_bytes(b" " * (1 << 21))
    (session.layout.inbox / "deep.json").write_bytes(b"[" * 100_000)
    assert [c.id for c in inbox.waiting(session.layout)] == ["good"]
    names = sorted(p.name for p in session.layout.damaged.iterdir())
    assert names == ["deep.json", "folder.json", "large.json", "link.json"]


def test_what_cannot_even_be_set_aside_stops_nobody(session: Session, disk: FaultyDisk) -> None:
    inbox.put(session.layout, control("good"), disk)
    (session.layout.inbox / "bad.json").write_bytes(b"{")
    session.layout.damaged.write_bytes(b"in the way")
    assert [c.id for c in inbox.waiting(session.layout)] == ["good"]
    assert (session.layout.inbox / "bad.json").exists()
