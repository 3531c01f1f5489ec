"""A differential snapshot restores to exactly the same JSON as a full one, and stays small."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from ipyagent_sessions.log.checkpoints import difference, patched

KEYS = st.text("abvsdrk$é", max_size=2)
LEAVES = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


@given(JSON, JSON)
@example({"a": 1}, {"a": True})
@example({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}})
@example([1, 2], [1.0, 2, 3])
@example({"v": 1}, {"a": 2})
@example({"a": 1, "b": 2}, {"b": 2, "c": 3, "a": 1})
@example({}, [])
@example({"zero": 0.0}, {"zero": -0.0})
@example(None, {"a": None})
def test_a_patch_turns_the_old_into_the_new_byte_for_byte(old: Any, new: Any) -> None:
    patch = msgspec.json.decode(encoded(difference(old, new)))
    assert encoded(patched(msgspec.json.decode(encoded(old)), patch)) == encoded(new)
    before, after = msgspec.Raw(encoded(old)), msgspec.Raw(encoded(new))
    undecoded = msgspec.json.decode(encoded(difference(before, after)))
    assert encoded(patched(before, undecoded)) == encoded(new)


@given(st.dictionaries(KEYS, JSON, max_size=5), st.lists(JSON, max_size=3), st.randoms(use_true_random=False))
def test_a_patch_of_a_value_that_changed_in_places_restores_it(old: dict[str, Any], new_parts: list[Any], rng: Random) -> None:
    new: Any = msgspec.json.decode(encoded(old))
    for part in new_parts:
        place: Any = new
        while isinstance(place, dict) and place and rng.random() < 0.5:
            place = place[rng.choice(list(place))]
        if isinstance(place, dict):
            if place and rng.random() < 0.5:
                place.pop(rng.choice(list(place)))
            else:
                place[rng.choice("abcdrsv")] = part
        elif isinstance(place, list):
            place.append(part)
    assert encoded(patched(old, difference(old, new))) == encoded(new)


@given(JSON)
def test_equal_values_have_no_difference(value: Any) -> None:
    assert difference(value, msgspec.json.decode(encoded(value))) is None


def test_patching_leaves_the_old_value_as_it_was() -> None:
    old = {"a": {"b": [1]}, "c": 2}
    before = encoded(old)
    patched(old, difference(old, {"a": {"b": [1, 2]}, "d": 3}))
    assert encoded(old) == before


def test_a_list_that_grew_costs_only_what_was_appended() -> None:
    old = {"list": list(range(10_000))}
    patch = difference(old, {"list": [*range(10_000), "new"]})
    assert encoded(patch) == b'{"r":{"list":{"a":["new"]}}}'
