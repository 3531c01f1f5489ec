"""The digest of arguments identifies them: the same however dicts and sets are ordered, different for different values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipyagent_sessions import codec

KEYS = st.text(max_size=3) | st.integers() | st.booleans() | st.none() | st.just("$") | st.just("\ud800") | st.just("\0")


def digest(value: Any) -> str:
    return codec.digest(codec.canonical(value))


@given(st.dictionaries(KEYS, st.integers(), max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_a_dict_does_not_matter(value: dict[Any, int], rng: Any) -> None:
    items = list(value.items())
    rng.shuffle(items)
    assert digest(dict(items)) == digest(value)
    assert digest({"outer": [dict(items)], 1: dict(items)}) == digest({1: value, "outer": [value]})


@given(st.lists(st.text(max_size=3) | st.integers(), unique=True, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_a_set_does_not_matter(items: list[Any], rng: Any) -> None:
    other = items[:]
    rng.shuffle(other)
    assert digest(set(other)) == digest(set(items))


DIFFERENT = [
    1,
    1.0,
    True,
    "1",
    None,
    [1],
    (1,),
    {1},
    frozenset({1}),
    {"a": 1},
    {"a": 1.0},
    {1: "a"},
    {"1": "a"},
    b"1",
    bytearray(b"1"),
    0.0,
    -0.0,
    "a\0",
    "a\ufffd",
    "",
    [],
    (),
    {},
    [[]],
    {"$": "tuple", "v": [1]},
]


def test_different_values_have_different_digests() -> None:
    digests = [digest(v) for v in DIFFERENT]
    assert len(set(digests)) == len(digests)


def test_a_digest_is_the_same_on_every_machine() -> None:
    assert digest({"b": [1, 2.5, None], "a": ("é", b"\xff")}) == "bf261c7d84b47116"


@pytest.mark.parametrize("value", [[1, 2], "ab"])
def test_the_order_of_what_is_ordered_matters(value: Any) -> None:
    assert digest(value) != digest(value[::-1])
