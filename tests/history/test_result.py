"""What a result looks like to a person and to a program; hostile text is harmless in both forms."""

from __future__ import annotations

from datetime import UTC, date, datetime
from html.parser import HTMLParser
from typing import Any

import pytest

from ipyagent_sessions.history.sql import query
from ipyagent_sessions.store import Store

HOSTILE = "\x1b[2J<script>alert(1)</script>\u202egnp.exe\x07\x9b31m\r\nrow"


def test_rows_and_frames_hold_the_same_values(store: Store) -> None:
    found = query(store, "SELECT 1 AS n, 'ä' AS t, TIMESTAMPTZ '2026-01-02 03:04:05Z' AS at, NULL AS nothing, [1, 2] AS list")
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert len(found) == 1
    assert found.columns == ["n", "t", "at", "nothing", "list"]
    assert found.rows() == [{"n": 1, "t": "ä", "at": at, "nothing": None, "list": [1, 2]}]
    assert found.arrow().num_rows == 1


def test_pandas_and_polars_frames(store: Store) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    found = query(store, "SELECT i AS n, i / 2 AS half FROM range(3) r(i)")
    frame: Any = found.df()
    assert frame["n"].tolist() == [0, 1, 2]
    other: Any = found.pl()
    assert other["half"].to_list() == [0.0, 0.5, 1.0]


def test_a_sum_of_integers_is_an_integer_and_equal_names_are_told_apart(store: Store) -> None:
    found = query(store, "SELECT sum(i) AS a, sum(i) AS a, count(*) AS a FROM range(4) r(i)")
    assert list(found.rows()[0].values()) == [6, 6, 4]
    assert len(set(found.columns)) == 3
    assert query(store, "SELECT sum(9223372036854775807) AS big FROM range(2)").rows()[0]["big"] == 2 * (2**63 - 1)


def test_text_is_aligned_and_numbers_stand_right(store: Store) -> None:
    assert str(query(store, "SELECT * FROM (VALUES ('日本', 5, 1.5), ('a', 1234, NULL)) v(name, n, x)")) == (
        "name     n    x\n────  ────  ───\n日本     5  1.5\na     1234\n2 rows"
    )


def test_text_stops_after_fifty_rows_and_says_how_many_more(store: Store) -> None:
    text = str(query(store, "SELECT repeat('x', 100) AS x FROM range(60)"))
    lines = text.splitlines()
    assert lines[2] == "x" * 39 + "…"
    assert len(lines) == 53
    assert "60 rows (10 more" in lines[-1]
    html = query(store, "FROM range(60)").html()
    assert html.count("<tr>") == 51
    assert "10 more" in html


def test_a_plan_is_shown_as_it_is(store: Store) -> None:
    assert "│" in str(query(store, "EXPLAIN SELECT count(*) FROM events"))


@pytest.mark.parametrize("sql", ["SELECT $t AS c", "SELECT [$t] AS c", "SELECT {'k': $t} AS c", f'SELECT 1 AS "{HOSTILE}"'])
def test_hostile_text_is_harmless_in_both_forms(store: Store, sql: str) -> None:
    found = query(store, sql, {"t": HOSTILE} if "$t" in sql else None)
    text = found.text(width=200)
    assert len(text.splitlines()) == 4
    assert not set(text) & set("\x1b\x07\x9b\r\u202e")

    class Tags(HTMLParser):
        seen: set[str] = set()  # noqa: RUF012  # one parser, one test

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.seen.add(tag)
            assert all(name in ("class", "style") for name, _ in attrs)

    Tags.seen = set()
    html = found.html(width=200)
    Tags().feed(html)
    assert Tags.seen <= {"div", "table", "thead", "tbody", "tr", "th", "td", "p"}
    assert not set(html) & set("\x1b\x07\x9b\r\u202e")
    assert "&lt;script&gt;" in html


def test_numbers_are_right_aligned_in_html(store: Store) -> None:
    assert (
        '<td style="text-align:right">5</td><td style="text-align:left">a</td>'
        in query(store, "SELECT 5 AS n, 'a' AS t").html()
    )
    shown: Any = query(store, "SELECT 1 AS n")
    assert shown._repr_html_() == shown.html()


def test_a_cost_per_token_is_not_zero_and_a_time_beyond_pythons_is_text(store: Store) -> None:
    assert "3e-07" in str(query(store, "SELECT 3e-7::DOUBLE AS usd"))
    assert "0.0125" in str(query(store, "SELECT 0.0125::DOUBLE AS usd"))
    beyond = """SELECT 'infinity'::TIMESTAMPTZ AS a, '-infinity'::DATE AS b, DATE '20000-01-02' AS c, NULL::DATE AS d,
        unnest([DATE '2026-01-02', DATE 'infinity']) AS e"""
    first, second = query(store, beyond).rows()
    assert list(first.values()) == ["infinity", "-infinity", "20000-01-02", None, date(2026, 1, 2)]
    assert second["e"] == "infinity"
    assert "infinity" in query(store, beyond).html()
