"""A query only reads, only one statement runs, and it reads the views only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.history.guard import Vetted
from ipyagent_sessions.history.sql import query
from ipyagent_sessions.log import sealing
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

pytestmark = pytest.mark.usefixtures("rich")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "select 1;",
        "FROM events",
        "FROM events SELECT seq",
        "VALUES (1), (2)",
        "TABLE events",
        "WITH a AS (SELECT * FROM events) SELECT count(*) FROM a",
        "DESCRIBE events",
        "SUMMARIZE tasks",
        "SHOW TABLES",
        "WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM t WHERE a < 3) FROM t",
        "EXPLAIN SELECT * FROM events",
        "/* why */ EXPLAIN ANALYZE -- how long\n SELECT count(*) FROM events",
        "SELECT seq FROM events UNION ALL SELECT 1",
        "SELECT unnest([1, 2])",
        "FROM range(3)",
        "FROM lineage('a')",
        "SELECT * FROM (DESCRIBE events)",
        "SELECT seq, row_number() OVER (ORDER BY seq) FROM events QUALIFY row_number() OVER (ORDER BY seq) < 3",
        "SELECT j.key FROM events, json_each(payload) j",
        "SELECT list_transform([1], lambda x: x + 1)",
        "SELECT count(*) FROM events USING SAMPLE 3 ROWS",
        "SELECT count(*) FROM events TABLESAMPLE 50%",
        "EXPLAIN SELECT * FROM events USING SAMPLE 10%",
    ],
)
def test_what_reads_is_run(store: Store, sql: str) -> None:
    assert len(query(store, sql)) > 0


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("COPY (SELECT 1) TO 'x.csv'", "COPY"),
        ("ATTACH 'x.db'", "ATTACH"),
        ("INSTALL httpfs", "INSTALL"),
        ("LOAD json", "LOAD"),
        ("PRAGMA version", "PRAGMA"),
        ("SET threads = 1", "SET"),
        ("RESET threads", "RESET"),
        ("CREATE TABLE t (a INT)", "CREATE"),
        ("INSERT INTO base.tail VALUES (1)", "INSERT"),
        ("UPDATE base.sessions SET held = true", "UPDATE"),
        ("DELETE FROM base.tail", "DELETE"),
        ("DROP VIEW events", "DROP"),
        ("CALL range(3)", "CALL"),
        ("CHECKPOINT", "CHECKPOINT"),
        ("EXPORT DATABASE 'x'", "EXPORT"),
        ("BEGIN", "BEGIN"),
        ("USE base", "USE"),
        ("VACUUM", "VACUUM"),
        ("PREPARE p AS SELECT 1", "PREPARE"),
        ("EXPLAIN COPY (SELECT 1) TO 'x.csv'", "COPY"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'", "COPY"),
        ("/* a */ -- b\n copy (select 1) to 'x'", "COPY"),
        ("EXPLAIN (ANALYZE) SELECT 1", "EXPLAIN with options"),
        ("WITH a AS (COPY (SELECT 1) TO 'x.csv') SELECT * FROM a", "COPY"),
        ("SELECT (WITH a AS (COPY (SELECT 1) TO 'x.csv') SELECT 1)", "COPY"),
        ("EXPLAIN ANALYZE WITH a AS (COPY (SELECT 1) TO 'x.csv') SELECT * FROM a", "COPY"),
        ("WITH a AS (INSERT INTO base.tail SELECT * FROM base.tail RETURNING *) FROM a", "INSERT"),
        ("WITH a AS (DELETE FROM base.tail) SELECT 1", "DELETE"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("SELECT 1; DROP VIEW events", "2 statements"),
        ("", "an empty query"),
        ("-- nothing", "an empty query"),
        ("FROM query('WITH a AS (COPY (SELECT 1) TO ''x.csv'') SELECT 1')", "query()"),
        ("FROM system.main.query('SELECT 1')", "query()"),
        ("FROM json_execute_serialized_sql('{}')", "json_execute_serialized_sql()"),
        ("FROM query_table('events')", "query_table()"),
        ("FROM read_csv('/etc/passwd')", "read_csv()"),
        ("FROM read_text('/etc/passwd')", "read_text()"),
        ("FROM READ_PARQUET('x')", "read_parquet()"),
        ("FROM glob('/etc/*')", "glob()"),
        ("FROM read_blob('/etc/passwd')", "read_blob()"),
        ("FROM sniff_csv('/etc/passwd')", "sniff_csv()"),
        ("FROM enable_logging()", "enable_logging()"),
        ("SELECT * FROM events, LATERAL (FROM read_text('/etc/passwd'))", "read_text()"),
    ],
)
def test_everything_else_is_refused_by_its_name(store: Store, sql: str, named: str) -> None:
    with pytest.raises(UsageError) as caught:
        query(store, sql)
    assert named in caught.value.message
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "sql", ["FROM '/etc/passwd'", "FROM 'x.parquet'", 'SELECT * FROM "/etc/passwd"', "FROM store", "FROM sources"]
)
def test_a_name_of_a_file_or_of_a_python_variable_is_no_table(store: Store, sql: str) -> None:
    with pytest.raises(UsageError, match=r"does not exist|Cannot access file"):
        query(store, sql)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT nope FROM events", 'Referenced column "nope" not found'),
        ("SELEC 1", "syntax error"),
        ("FROM nope", "nope"),
        ("SELECT 'a'::INT FROM events", "Could not convert"),
        ("SELECT error('my\nown')", "my own"),
        ("SELECT ?", "parameter"),
        ("FROM lineage('nobody')", "there is no session nobody"),
    ],
)
def test_a_mistake_is_one_line_of_duckdb(store: Store, session: Session, rich: Appender, sql: str, says: str) -> None:
    sealing.seal(session.layout, rich.durable_seq, rich.epoch, 1, store.disk)
    with pytest.raises(UsageError) as caught:
        query(store, sql)
    assert says.lower() in str(caught.value).lower()
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_text_that_is_not_utf_8_is_refused_by_its_place(store: Store) -> None:
    with pytest.raises(UsageError, match="character 9 of the query"):
        query(store, "SELECT '\udcff'")


def unvetted(connection: Any, sql: str) -> Vetted:
    return Vetted(sql, [])


def test_a_query_that_got_past_the_parser_still_reaches_no_file(
    store: Store, session: Session, rich: Appender, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sealing.seal(session.layout, rich.durable_seq, rich.epoch, 1, store.disk)
    monkeypatch.setattr("ipyagent_sessions.history.guard.vetted", unvetted)
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir(tmp_path))
    for sql in (
        "FROM read_text('/etc/hostname')",
        "FROM glob('/etc/*')",
        "COPY (SELECT 1) TO 'x.csv'",
        "ATTACH 'x.db'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "FROM enable_logging()",
    ):
        with pytest.raises(UsageError):
            query(store, sql)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '{path}' (FORMAT parquet, USE_TMP_FILE false)",
        "WITH a AS (COPY (SELECT 1) TO '{path}' (FORMAT parquet, USE_TMP_FILE false)) SELECT * FROM a",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{path}' (FORMAT parquet, USE_TMP_FILE false)",
        "FROM query('WITH a AS (COPY (SELECT 1) TO ''{path}'' (FORMAT parquet, USE_TMP_FILE false)) SELECT * FROM a')",
    ],
)
def test_no_query_overwrites_a_segment(store: Store, session: Session, rich: Appender, sql: str) -> None:
    sealing.seal(session.layout, rich.durable_seq, rich.epoch, 1, store.disk)
    (segment,) = session.layout.segments()
    before = segment.path.read_bytes()
    with pytest.raises(UsageError, match=r"COPY|query"):
        query(store, sql.format(path=segment.path))
    assert segment.path.read_bytes() == before


def test_parameters_are_taken_by_place_and_by_name(store: Store) -> None:
    assert query(store, "SELECT ? AS a", ["x'; DROP"]).rows() == [{"a": "x'; DROP"}]
    assert len(query(store, "FROM events WHERE event_type = $type", {"type": "TaskQueued"})) == 2


def test_a_query_leaves_nothing_behind(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = sorted(p for p in tmp_path.rglob("*"))
    query(store, "SELECT count(*) FROM events a, events b, events c")
    assert sorted(p for p in tmp_path.rglob("*")) == before


def test_importing_costs_neither_duckdb_nor_arrow_and_a_query_does_not_import_pandas(store: Store) -> None:
    code = f"""
import sys
from ipyagent_sessions.store import Store
import ipyagent_sessions.history.sql as sql
assert not {{"duckdb", "pyarrow", "pandas"}} & set(sys.modules), sorted(sys.modules)
result = sql.query(Store({str(store.root)!r}), "SELECT * FROM events")
str(result), result.html(), result.rows()
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
