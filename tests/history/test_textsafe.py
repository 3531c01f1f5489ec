"""Text of others cannot move the cursor, forge a line, or read differently from what it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipyagent_sessions.textsafe import display_width, plain


def test_controls_become_visible() -> None:
    assert plain("a\x1b[31mb\x00\x7f\x9b") == "a\\x1b[31mb\\x00\\x7f\\x9b"
    assert plain("a\nb\r\tc") == "a\\nb\\r\\tc"
    assert plain("x\u202ey\u2066z\u2028") == "x\\u202ey\\u2066z\\u2028"
    assert plain("\ud800") == "\\ud800"


def test_ordinary_text_of_any_language_stays() -> None:
    for text in ("", "plain", "naïve", "日本語", "שלום", "👩\u200d🔬", "a\u00a0b"):
        assert plain(text) == text


def test_a_cut_counts_columns_of_the_terminal() -> None:
    assert plain("abcdef", 4) == "abc…"
    assert plain("日本語", 6) == "日本語"
    assert plain("日本語", 5) == "日本…"
    assert plain("\x1b\x1b", 5) == "\\x1b…"
    assert display_width("日e\u0301") == 3


@given(st.text(st.characters()), st.integers(1, 30))
def test_any_text_is_one_encodable_line_within_its_width(text: str, width: int) -> None:
    shown = plain(text, width)
    assert display_width(shown) <= width
    assert len(shown.splitlines() or [""]) == 1
    shown.encode()
