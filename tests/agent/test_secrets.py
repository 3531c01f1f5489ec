"""A secret value is in no text that went through `scrub`, however JSON has escaped it; everything else is left as it was."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ipyagent_sessions.agent.secrets import Secrets

# What the mark `<secret NAME>` is made of is left out: a value that is a piece of the mark would be found in it.
values = st.text(st.sampled_from("abkx019-_/+=\\\"'\n\té€😀 "), min_size=4, max_size=20).filter(lambda v: len(v.strip()) >= 4)
texts = st.text(st.sampled_from('abkx019-_/\\"\n é€😀{}:,'), max_size=40)


@given(st.lists(values, min_size=1, max_size=4, unique=True), st.data())
def test_no_value_survives_in_plain_text(secrets: list[str], data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.one_of(texts, st.sampled_from(secrets)), max_size=8))
    scrubbed = Secrets({f"N{i}": value for i, value in enumerate(secrets)}).scrub("".join(pieces))
    rest = [piece for piece in scrubbed.split("<") if piece]
    assert not any(value.strip() in piece for value in secrets for piece in rest)


@given(values, texts, texts, st.integers(0, 2), st.booleans())
def test_no_value_survives_inside_json(secret: str, before: str, after: str, depth: int, ascii_only: bool) -> None:
    text = before + secret + after
    for _ in range(depth):
        text = json.dumps({"text": text}, ensure_ascii=ascii_only)
    scrubbed = Secrets({"KEY": secret}).scrub(text)
    for _ in range(depth):  # it is JSON still, and what JSON says is free of the value
        scrubbed = json.loads(scrubbed)["text"]
    assert secret.strip() not in scrubbed
    assert "<secret KEY>" in scrubbed


@given(texts)
def test_a_text_without_a_secret_comes_back_as_the_same_object(text: str) -> None:
    assert Secrets({"KEY": "quite-another-value"}).scrub(text) is text


def test_of_two_values_that_begin_alike_the_longer_leaves_no_rest() -> None:
    secrets = Secrets({"A": "canary-1", "B": "canary-1234"})
    assert secrets.scrub("canary-1234 canary-1") == "<secret B> <secret A>"


def test_a_value_is_not_shown_by_repr_and_a_short_one_is_named_as_unprotected() -> None:
    secrets = Secrets({"KEY": "canary-1234", "PIN": "123", "EMPTY": ""})
    assert repr(secrets) == "Secrets(EMPTY, KEY, PIN)"
    assert secrets.unprotected == ("PIN",)
    assert secrets.scrub("123 canary-1234") == "123 <secret KEY>"


def test_white_space_around_a_value_does_not_hide_it() -> None:
    assert Secrets({"KEY": " canary-1234\n"}).scrub("k=canary-1234;") == "k=<secret KEY>;"
