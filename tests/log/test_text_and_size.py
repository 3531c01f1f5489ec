"""Text of every kind and values of every size come back from the log; the clock may go where it likes."""

from __future__ import annotations

import pytest

from ipyagent_sessions import codec
from ipyagent_sessions.events import encode
from ipyagent_sessions.log import checkpoints
from ipyagent_sessions.log.blobs import THRESHOLD
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, activities, wait_until

NASTY = {
    "line separators": ("a\u2028b\u2029c\x85d", "a\u2028b\u2029c\x85d", None),
    "line feeds": ("a\nb\r\nc\rd", "a\nb\r\nc\rd", None),
    "a lone surrogate": ("emoji \ud83e cut", "emoji \ufffd cut", 1),
    "NUL": ("a\0b\0", "a\ufffdb\ufffd", 2),
    "a byte-order mark": ("\ufeffa", "\ufeffa", None),
    "a record inside a text": ('{"c":"00000000","seq":1}\n', '{"c":"00000000","seq":1}\n', None),
    "a backslash u0000 that is no NUL": ("\\u0000", "\\u0000", None),
    "astral and combining": ("\U0001f9ea e\u0301 \u202e", "\U0001f9ea e\u0301 \u202e", None),
}


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("sealed", [False, True], ids=["journal", "segment"])
def test_nasty_text_comes_back_and_what_was_replaced_is_counted(session: Session, me: Holder, name: str, sealed: bool) -> None:
    text, wanted, replaced = NASTY[name]
    appender = session.append(me)
    appender.emit("Noted", {"text": text, text: [text]}, ignorable=True)
    appender.emit("Noted", {"text": "next"}, ignorable=True)
    appender.close(rest=sealed)
    body = session.payload(session.event(2))
    assert body["text"] == wanted
    assert body[wanted] == [wanted]
    assert body.get("replaced_characters") == (replaced * 3 if replaced else None)
    assert [e.seq for e in session.events()] == [1, 2, 3]
    assert session.state().seq == 3


def test_a_title_with_a_cut_emoji_makes_a_session_that_opens(store: Store) -> None:
    session = store.create(title="cut \ud83e\0")
    assert session.state().title == "cut \ufffd\ufffd"
    assert store.sessions()[0].problem == ""


def test_a_value_of_20_mb_becomes_a_blob_and_comes_back(session: Session, me: Holder) -> None:
    value = {"rows": ["\u2028 x" * 1000] * 4000}
    body = codec.dumps(value)
    assert len(body) > 20_000_000
    appender = session.append(me)
    blobs: dict[str, bytes] = {}
    raw, name = appender.put(body, blobs)
    appender.emit("Noted", {"result": raw, "result_blob": name}, ignorable=True, blobs=blobs)
    appender.acknowledge()
    appender.close(rest=True)
    assert name is not None
    assert codec.loads(session.blobs.read(name)) == value
    assert max(p.stat().st_size for p in session.layout.root.rglob("*.*")) < 100_000, "the log itself stays small"


def test_values_up_to_the_threshold_stay_in_the_log(session: Session, me: Holder) -> None:
    appender = session.append(me)
    blobs: dict[str, bytes] = {}
    assert appender.put(b"1" * THRESHOLD, blobs)[1] is None
    assert blobs == {}
    assert appender.put(b"1" * (THRESHOLD + 1), blobs)[1] is not None
    appender.close()


def test_one_line_of_20_mb_is_read_back_too(session: Session, me: Holder) -> None:
    appender = session.append(me)
    appender.emit("Noted", {"text": "x" * 20_000_000}, ignorable=True)
    appender.emit("Noted", {"text": "after"}, ignorable=True)
    appender.close(rest=True)
    assert [len(session.payload(e).get("text", "")) for e in session.events()] == [0, 20_000_000, 5]


def test_the_same_blob_is_kept_once(session: Session, me: Holder) -> None:
    appender = session.append(me)
    for _ in range(3):
        blobs: dict[str, bytes] = {}
        _, name = appender.put(b'"' + b"z" * 40_000 + b'"', blobs)
        appender.emit("Noted", {"result_blob": name}, ignorable=True, blobs=blobs)
        appender.acknowledge()
    appender.close()
    assert len(list(session.layout.blobs.iterdir())) == 1


def test_a_clock_set_back_changes_neither_order_nor_state(session: Session, me: Holder, clock: FakeClock) -> None:
    appender = session.append(me)
    activities(appender, 3)
    clock.set_back(3600)
    activities(appender, 3)
    appender.close(rest=True)
    appender = session.append(me)
    clock.set_back(3600)
    activities(appender, 1)
    appender.close()
    found = list(session.events())
    assert [e.seq for e in found] == list(range(1, 16))
    assert found[-1].timestamp < found[0].timestamp
    assert Reader(session.layout).last_seq() == 15
    assert session.state().seq == 15


def test_the_newest_checkpoint_is_the_one_with_the_highest_seq_though_the_clock_went_back(
    session: Session, me: Holder, clock: FakeClock
) -> None:
    appender = session.append(me)
    for label in ("first", "second"):
        activities(appender, 2)
        appender.checkpoint("manual", label)
        clock.set_back(3600)
    appender.acknowledge()
    wait_until(lambda: len(checkpoints.sequence(session.layout)) == 2, what="two snapshots")
    appender.close()
    loaded = session.loaded()
    assert loaded.checkpoint == loaded.state.seq
    assert loaded.state.checkpoint is not None
    assert loaded.state.checkpoint.label == "second"


def test_a_time_that_came_late_is_told_apart_from_when_it_was_recorded(session: Session, me: Holder, clock: FakeClock) -> None:
    appender = session.append(me)
    appender.emit("Noted", {}, ignorable=True, timestamp=clock.now() - 60)
    appender.close()
    for rest in (False, True):
        event = session.event(2)
        assert (event.timestamp, event.recorded_at) == ("2025-12-31T23:59:00.000Z", "2026-01-01T00:00:00.000Z")
        assert b"recorded_at" in encode(event)
        session.append(me).close(rest=not rest)
