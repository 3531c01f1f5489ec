"""Events are immutable, canonical, cleaned on the way in, and take the documents' records as they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads
from ipyagent_sessions.errors import UsageError

DOCUMENT: dict[str, Any] = {
    "event_id": "evt_20260323_001",
    "event_type": "CodeGenerated",
    "timestamp": "2026-03-23T10:05:23.456Z",
    "workflow_id": "wf_feature_login_001",
    "activity_id": "act_generate_auth",
    "payload": {
        "files_generated": [{"path": "src/auth/login.ts", "lines": 45, "checksum": "sha256:abc123..."}],
        "dependencies_added": ["bcrypt", "jsonwebtoken"],
        "test_coverage": 85,
    },
    "metadata": {
        "agent_version": "codex-2026-03",
        "execution_time_ms": 12500,
        "resource_usage": {"cpu": "2 cores", "memory": "4 GB"},
    },
    "correlation": {"parent_event": "evt_20260323_000", "triggered_events": ["evt_20260323_002"]},
}
RECORDED = "2026-03-23T10:05:24.000Z"


def from_document(**changes: Any) -> ev.Event:
    return ev.from_document({k: v for k, v in {**DOCUMENT, **changes}.items() if v is not ...}, seq=7, recorded_at=RECORDED)


def test_the_documents_example_loads_unchanged() -> None:
    event = from_document()
    assert (event.event_type, event.timestamp, event.recorded_at) == ("CodeGenerated", DOCUMENT["timestamp"], RECORDED)
    assert (event.activity_id, event.agent_version, event.execution_time_ms) == ("act_generate_auth", "codex-2026-03", 12500)
    assert event.rss_bytes == 4 * 10**9
    assert event.cpu_s is None, "2 cores is no time"
    body = ev.payload_of(event)
    assert {k: body[k] for k in DOCUMENT["payload"]} == DOCUMENT["payload"]
    kept = body["document"]
    assert (kept["event_id"], kept["workflow_id"]) == ("evt_20260323_001", "wf_feature_login_001")
    assert kept["correlation"] == DOCUMENT["correlation"]
    assert kept["metadata"]["resource_usage"] == DOCUMENT["metadata"]["resource_usage"]
    assert not event.ignorable
    assert ev.decode(ev.encode(event)) == event


@pytest.mark.parametrize(
    "changes",
    [
        {"event_type": ...},
        {"timestamp": ...},
        {"timestamp": "yesterday"},
        {"timestamp": "2026-03-23T10:05:23"},
        {"payload": [1]},
        {"metadata": "fast"},
        {"metadata": {"execution_time_ms": "fast"}},
        {"activity_id": 5},
        {"metadata": {"agent_version": 3}},
    ],
)
def test_a_record_with_a_missing_or_wrong_field_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not an event record"):
        from_document(**changes)


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("2026-03-23T18:05:23.456+08:00", "2026-03-23T10:05:23.456Z"),
        ("2026-03-23T10:05:23Z", "2026-03-23T10:05:23.000Z"),
        ("2026-03-23T10:05:23.456789Z", "2026-03-23T10:05:23.457Z"),
    ],
)
def test_times_are_stored_in_utc_with_milliseconds_and_the_original_is_kept(written: str, stored: str) -> None:
    event = from_document(timestamp=written)
    assert event.timestamp == stored
    assert ev.payload_of(event)["document"]["timestamp"] == written


@pytest.mark.parametrize(
    "usage", [None, "much", {}, {"memory": None}, {"memory": "lots"}, {"memory": "x GB"}, {"memory": "4 parsecs"}]
)
def test_memory_that_does_not_say_is_unknown_and_never_zero(usage: Any) -> None:
    assert from_document(metadata={"resource_usage": usage}).rss_bytes is None


def test_a_foreign_type_is_kept_and_ignorable() -> None:
    event = from_document(event_type="PageTurned")
    assert (event.event_type, event.ignorable) == ("PageTurned", True)


TEXT = st.text(max_size=20) | st.text(st.characters(codec=None, categories=["Cs", "Cc", "Zl", "Zp", "Lu"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_any_json_becomes_a_payload_that_every_reader_can_stand(payload: dict[str, Any]) -> None:
    raw = ev.as_raw(payload)
    assert b"\n" not in bytes(raw)
    back = msgspec.json.decode(raw)
    text = msgspec.json.encode(back).decode("utf-8", "strict")
    assert "\\u0000" not in text.replace("\\\\", "")
    assert bytes(ev.as_raw(back)) == bytes(raw) or "replaced_characters" in back


@given(
    st.integers(1, 2**53),
    st.text(max_size=9),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.integers(0, 2**62),
    st.booleans(),
)
def test_encode_is_canonical(seq: int, actor: str, cpu: float | None, rss: int | None, ignorable: bool) -> None:
    event = ev.Event(seq, "Noted", RECORDED, actor=ev.clean(actor)[0], cpu_s=cpu, rss_bytes=rss, ignorable=ignorable)
    body = ev.encode(event)
    again = ev.decode(body)
    assert ev.encode(again) == body
    assert ev.digest(again) == ev.digest(event)
    assert b"null" not in body or "null" in actor


def test_the_engine_as_actor_is_left_out_whatever_string_object_it_is() -> None:
    spelled = "".join(["eng", "ine"])
    assert ev.encode(ev.Event(1, "Noted", RECORDED, actor=spelled)) == ev.encode(ev.Event(1, "Noted", RECORDED))


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ev.Event(1, "Noted", RECORDED).seq = 2  # type: ignore[misc]  # that it is refused is the claim


def test_an_event_with_fields_of_a_later_version_is_read_and_one_without_optional_fields_too() -> None:
    assert ev.decode(b'{"seq":1,"event_type":"Noted","timestamp":"x","mood":"fine"}').seq == 1


@pytest.mark.parametrize("payload", [object(), {"a": object()}, {1j: 2}])
def test_a_payload_that_is_no_json_is_refused(payload: Any) -> None:
    with pytest.raises(UsageError, match="must be JSON-like"):
        ev.as_raw(payload)


def test_a_payload_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UsageError):
        ev.as_raw({"loop": loop})


def test_cleaning_replaces_character_by_character_and_counts() -> None:
    assert ev.clean("plain") == ("plain", 0)
    assert ev.clean("é\u2028\U0001f9ea") == ("é\u2028\U0001f9ea", 0)
    assert ev.clean("a\0b\ud83e") == ("a\ufffdb\ufffd", 2)
    assert (
        bytes(ev.as_raw({"t": "\ud83e", "u": ["\0"]})) == b'{"t":"\xef\xbf\xbd","u":["\xef\xbf\xbd"],"replaced_characters":2}'
    )


def test_a_value_is_cleaned_in_tuples_and_keys_too_and_counted() -> None:
    assert ev.cleaned({"a\0": ("\ud83e", [1, "b"])}) == ({"a\ufffd": ["\ufffd", [1, "b"]]}, 2)


def test_a_struct_payload_is_cleaned_as_well() -> None:
    body = msgspec.json.decode(
        ev.as_raw(
            payloads.AlarmRaised(
                "disk",
                "full \ud83e",
            )
        )
    )
    assert (body["text"], body["replaced_characters"]) == ("full \ufffd", 1)


@given(st.integers(0, 4 * 10**12))
def test_times_round_trip_to_the_millisecond(milliseconds: int) -> None:
    text = ev.Stamper()(milliseconds / 1000)
    assert text.endswith("Z")
    assert len(text) == 24
    assert round(ev.seconds_of(text) * 1000) == milliseconds
