"""Every payload with a schema round-trips with all its fields set, and one that does not fit is an error with its place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ipyagent_sessions import events as ev
from ipyagent_sessions import folding, payloads, state
from ipyagent_sessions.errors import DamageError

SAMPLES: dict[str, Any] = {
    "bool": True,
    "int": 3,
    "float": 2.5,
    "list[int]": [1, 2],
    "list[str]": ["v\u2028"],
    "dict[str, list[str]]": {"k": ["v"]},
    "dict[str, float]": {"k": 1.5},
    "dict[str, str]": {"k": "v\u2028"},
    "dict[str, typing.Any]": {"k": [1, None]},
    "msgspec.Raw": msgspec.Raw(b'{"a":[1,"\xe6\x97\xa5"]}'),
    "str": "t\u2028x",
}


def sample(kind: Any) -> Any:
    """A value of a field's type, other than its default."""
    text = kind.__module__ + "." + kind.__name__ if kind is msgspec.Raw else getattr(kind, "__name__", "") or str(kind)
    text = str(kind) if "[" in str(kind) else text
    return SAMPLES[text.removesuffix(" | None")] if "|" not in text else SAMPLES[text.split(" | ")[0]]


def filled(name: str) -> tuple[payloads.Payload, dict[str, Any]]:
    schema = payloads.SCHEMAS[name]
    values = {field.name: sample(field.type) for field in msgspec.structs.fields(schema)}
    return schema(**values), values


def plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, msgspec.Raw) else value


@pytest.mark.parametrize("name", sorted(payloads.SCHEMAS))
def test_it_round_trips_with_all_its_fields_set(name: str) -> None:
    body, values = filled(name)
    raw = ev.as_raw(body)
    found = folding.parsed(ev.Event(1, name, "x", payload=raw))
    assert type(found) is payloads.SCHEMAS[name]
    assert {key: plain(getattr(found, key)) for key in values} == {key: plain(value) for key, value in values.items()}
    assert bytes(ev.as_raw(found)) == bytes(raw)


@pytest.mark.parametrize("name", sorted(payloads.SCHEMAS))
def test_fields_of_a_later_version_are_passed_over(name: str) -> None:
    body, _ = filled(name)
    raw = msgspec.json.encode({**msgspec.json.decode(ev.as_raw(body)), "mood": "fine"})
    assert bytes(ev.as_raw(folding.parsed(ev.Event(1, name, "x", payload=msgspec.Raw(raw))))) == bytes(ev.as_raw(body))


def test_every_type_with_a_schema_is_in_the_vocabulary_and_is_folded() -> None:
    assert set(payloads.SCHEMAS) <= ev.TYPES
    for name in sorted(payloads.SCHEMAS):
        folding.apply(state.State(), ev.Event(1, name, "2026-01-01T00:00:00.000Z", payload=ev.as_raw(filled(name)[0])))


@pytest.mark.parametrize("body", [b"[]", b"null", b'{"path":5}', b'{"path":"a"}'])
def test_a_payload_that_does_not_fit_names_its_event(body: bytes) -> None:
    with pytest.raises(DamageError, match="the payload of event 9 does not fit its type FileWritten"):
        folding.apply(state.State(), ev.Event(9, "FileWritten", "x", payload=msgspec.Raw(body)))


@pytest.mark.parametrize("listed", [None, 5, "a.py", ["a.py"], [None], [{"path": "a.py"}]])
def test_whatever_a_workflow_lists_as_generated_code_can_be_folded(listed: Any) -> None:
    folding.apply(state.State(), ev.Event(1, "CodeGenerated", "x", payload=ev.as_raw({"files_generated": listed})))
