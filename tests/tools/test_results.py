"""What a model is told is bounded, and is text or JSON whatever a tool returns."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import BinaryContent, ToolReturn, tool_return_ta

from ipyagent_sessions.agent.tools.results import LIMIT, bounded, explained
from ipyagent_sessions.errors import UsageError

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=30,
)


@given(_JSON)
def test_short_data_stays_what_it_is(value: Any) -> None:
    again = bounded(value)
    if not isinstance(value, str):
        assert again == value


@given(st.text(alphabet=st.characters(), max_size=300), st.integers(1, 200))
def test_no_text_is_longer_than_the_limit_and_its_note(text: str, limit: int) -> None:
    cut = bounded(text, limit=limit)
    assert len(cut) <= limit + 120
    cut.encode()  # a lone surrogate, which no request takes, would raise
    assert ("characters are left out" in cut) == (len(text) > limit)


def test_long_data_is_cut_as_text_and_says_so() -> None:
    cut = bounded({"rows": ["x" * 100] * 1_000}, "ask for fewer rows")
    assert isinstance(cut, str)
    assert len(cut) < LIMIT + 120
    assert cut.endswith("characters are left out; ask for fewer rows]")


def test_what_json_cannot_say_becomes_text() -> None:
    frame = pd.DataFrame({"a": [1, 2]})
    assert bounded(frame) == str(frame)
    ring: list[Any] = []
    ring.append(ring)
    assert bounded(ring) == "[[...]]"
    assert bounded(object).startswith("<class")


def test_numbers_that_json_has_not_are_said_in_words() -> None:
    assert bounded([float("inf"), float("nan"), 1.5]) == ["Infinity", "NaN", 1.5]
    assert bounded(float("-inf")) == "-Infinity"


def test_pictures_pass_beside_text_that_is_bounded() -> None:
    picture = BinaryContent(b"\x89PNG", media_type="image/png")
    text, same = bounded(["x" * 30_000, picture])
    assert len(text) < LIMIT + 120
    assert same is picture
    returned = bounded(ToolReturn("y" * 30_000, content=[picture]))
    assert len(returned.return_value) < LIMIT + 120
    assert returned.content == [picture]


@given(_JSON)
def test_a_result_always_fits_into_a_request(value: Any) -> None:
    assert tool_return_ta.dump_json(bounded(value, limit=50))


def test_an_error_of_ours_is_told_with_its_hint_and_without_its_type() -> None:
    assert explained(UsageError("no such file", hint="look with list_files")) == "no such file; look with list_files"


def test_an_error_text_is_bounded() -> None:
    with pytest.raises(ValueError, match="x") as caught:
        raise ValueError("x" * 10_000)
    assert len(explained(caught.value)) < 2_200
