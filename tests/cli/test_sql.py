"""`sql`: the query is kept as it is written, options stand before or behind it, and what is printed is as one asked."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal

import pytest
from tests.cli.conftest import Terminal

from ipyagent_sessions.commands import parser
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.views import programs

QUERY = "select 1.5::decimal(5, 2) as price, [1, 2] as two, 'a, \"b\"\n' as text, null as none, true as yes"


@pytest.fixture(autouse=True)
def store(terminal: Terminal) -> None:
    terminal("run", "flows:audit")


@pytest.mark.parametrize("words", [["--format", "json", QUERY], [QUERY, "--format=json"], [QUERY, "--json"]])
def test_json_for_programs_wherever_the_option_stands(terminal: Terminal, words: list[str]) -> None:
    said = terminal("sql", *words)
    assert (said.status, said.err) == (0, "")
    assert json.loads(said.out) == [{"price": 1.5, "two": [1, 2], "text": 'a, "b"\n', "none": None, "yes": True}]


def test_csv_under_a_line_of_names(terminal: Terminal) -> None:
    said = terminal("sql", QUERY, "--format", "csv")
    names, row = csv.reader(io.StringIO(said.out))
    assert names == ["price", "two", "text", "none", "yes"]
    assert row == ["1.50", "[1, 2]", 'a, "b"\n', "", "true"]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("1.5", 1.5), ("0.10", 0.1), ("1E+2", 100.0), ("12345678901234567.89", "12345678901234567.89"), ("NaN", "NaN")],
)
def test_a_decimal_is_a_number_where_that_is_exact(value: str, wanted: float | str) -> None:
    assert json.loads(programs.as_json([Decimal(value)])) == [wanted]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["select 1", "--fromat", "csv"], "'--fromat' is not known; usage: ipyagent sql"),
        (["select 1", "--format", "xml"], "argument --format: invalid choice: 'xml'"),
        (["select 1", "--format", "csv", "more"], "'more' is not known; usage: ipyagent sql"),
        (["--fromat", "csv", "select 1"], "'--fromat' is not known"),
        (["--format", "csv"], "sql needs a query"),
    ],
)
def test_what_is_no_option_is_refused(terminal: Terminal, words: list[str], told: str) -> None:
    said = terminal("sql", *words)
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
    assert told in said.err


@pytest.mark.parametrize(
    "words",
    [["select 7 as n -- --format csv"], ["--first\nselect 7 as n"], ["select", "7", "as", "n"], ["select 7 as n --note"]],
)
def test_comments_and_unquoted_words_are_the_query(terminal: Terminal, words: list[str]) -> None:
    said = terminal("sql", *words, "--format", "json")
    assert (said.err, json.loads(said.out)) == ("", [{"n": 7}])


@pytest.mark.parametrize(
    ("line", "query", "form", "out"),
    [
        ("sql select 1 -- --format csv", "select 1 -- --format csv", "table", None),
        ("sql --format json select 'a b'", "select 'a b'", "json", None),
        ("sql --out=x --format csv\n\n--why\nselect 1", "--why\nselect 1", "csv", "x"),
        ("sql 'select \"a\" --b' --format json --out x", 'select "a" --b', "json", "x"),
        ('sql "select 1"', "select 1", "table", None),
        ("sql 'a' || 'b'", "'a' || 'b'", "table", None),
    ],
)
def test_a_line_of_a_notebook_has_the_same_options(line: str, query: str, form: str, out: str | None) -> None:
    parsed = parser.parse("%agent", parser.split(line))
    assert (parsed.query, parsed.format, parsed.out) == (query, form, out)


def test_a_line_of_a_notebook_refuses_what_is_no_option() -> None:
    with pytest.raises(UsageError, match="'--fromat' is not known; usage: %agent sql"):
        parser.parse("%agent", parser.split('sql "select 1" --fromat csv'))


def test_what_json_has_no_number_for_is_text(terminal: Terminal) -> None:
    terminal("run", "flows:audit")
    said = terminal("sql", "select 'nan'::double as a, [1.5, '-inf'::double] as b", "--format", "json")
    assert json.loads(said.out, parse_constant=lambda name: pytest.fail(name)) == [{"a": "nan", "b": [1.5, "-inf"]}]
