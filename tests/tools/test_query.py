"""SQL over the user's frames and files: it only reads, and it reads nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ipyagent_sessions.agent.tools.query import query
from ipyagent_sessions.agent.tools.tables import References
from ipyagent_sessions.agent.tools.workbench import T, Workbench
from ipyagent_sessions.errors import UsageError


def ask(bench: Workbench, sql: str, max_rows: int = 100) -> Any:
    return asyncio.run(query(bench)(sql, max_rows))


def rows(bench: Workbench, sql: str) -> Any:
    return ask(bench, sql)["rows"]


@pytest.fixture(autouse=True)
def tables(root: Path) -> None:
    (root / "data/year=2024").mkdir(parents=True)
    (root / "data/a.csv").write_text("x,y\n1,one\n2,two\n")
    (root / "data/b.csv").write_text("x,y\n3,three\n")
    (root / "data/it's é.csv").write_text("x\n7\n")
    with gzip.open(root / "data/c.csv.gz", "wt") as file:
        file.write("x,y\n4,four\n")
    (root / "data/l.jsonl").write_text('{"x": 5}\n{"x": 6}\n')
    pq.write_table(pa.table({"x": [1, 2]}), root / "data/year=2024/p.parquet")


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"n": [1, 2]}),
        pl.DataFrame({"n": [1, 2]}),
        pl.LazyFrame({"n": [1, 2]}),
        pa.table({"n": [1, 2]}),
        pa.RecordBatch.from_pydict({"n": [1, 2]}),
    ],
    ids=lambda frame: f"{type(frame).__module__.partition('.')[0]}.{type(frame).__name__}",
)
def test_frames_of_the_notebook_are_tables(bench: Workbench, frame: Any) -> None:
    bench.namespace = {"sales": frame, "other": 3}
    assert ask(bench, "SELECT sum(n)::INT AS total FROM sales") == {"columns": {"total": "INTEGER"}, "rows": [[3]]}


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("FROM 'data/a.csv'", [[1, "one"], [2, "two"]]),
        ("SELECT x FROM './data/a.csv' WHERE x > 1", [[2]]),
        ("FROM read_csv('data/a.csv', header = true)", [[1, "one"], [2, "two"]]),
        ("SELECT sum(x)::INT FROM read_csv(['data/a.csv', 'data/b.csv'])", [[6]]),
        ("SELECT sum(x)::INT FROM 'data/?.csv'", [[6]]),
        ("SELECT sum(x)::INT FROM read_csv('data/?.csv')", [[6]]),
        ("FROM 'data/c.csv.gz'", [[4, "four"]]),
        ("SELECT sum(x)::INT FROM 'data/l.jsonl'", [[11]]),
        ("SELECT count(*), any_value(year) FROM read_parquet('data/**/*.parquet', hive_partitioning = true)", [[2, 2024]]),
        ("SELECT 'é', x FROM read_csv('data/it''s é.csv')", [["é", 7]]),
        ("FROM 'data/it''s é.csv'", [[7]]),
        ("SELECT column_name FROM (DESCRIBE 'data/a.csv')", [["x"], ["y"]]),
        ("WITH t AS (FROM 'data/a.csv') SELECT t.x, b.x FROM t, 'data/b.csv' b", [[1, 3], [2, 3]]),
    ],
)
def test_files_of_the_workspace_are_tables(bench: Workbench, sql: str, found: list[Any]) -> None:
    assert rows(bench, sql) == found


def test_files_are_found_by_their_absolute_path_inside(bench: Workbench, root: Path) -> None:
    assert rows(bench, f"SELECT count(*) FROM '{root}/data/a.csv'") == [[2]]
    assert rows(bench, f"SELECT count(*) FROM read_csv('{root}/data/a.csv')") == [[2]]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t AS SELECT 1",
        "COPY (SELECT 1) TO 'data/out.csv'",
        "WITH x AS (COPY (SELECT 1) TO 'data/out.csv') SELECT 1",
        "DELETE FROM 'data/a.csv'",
        "ATTACH 'x.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "SELECT 1; SELECT 2",
        "",
        "SELECT * FROM read_text('data/a.csv')",
        "SELECT * FROM read_blob('data/a.csv')",
        "SELECT * FROM glob('*')",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM sniff_csv('data/a.csv')",
        "FROM 'https://example.org/x.csv'",
        "FROM read_csv('s3://bucket/x.csv')",
        "FROM '/etc/passwd'",
        "FROM read_csv('/etc/passwd')",
        "FROM read_csv('/etc/pass*')",
        "FROM read_csv('../*.csv')",
        "FROM read_csv('data/' || 'a.csv')",
        "FROM read_csv(['data/a.csv', '/etc/passwd'])",
        "FROM read_csv((SELECT '/etc/passwd'))",
        "FROM '../secret.csv'",
        "FROM read_csv('/proc/self/environ')",
        "SELECT getenv('HOME')",
        "SELECT * FROM duckdb_settings()",
    ],
)
def test_what_does_not_read_the_users_tables_is_refused(bench: Workbench, root: Path, sql: str) -> None:
    (root.parent / "secret.csv").write_text("x\n1\n")
    before = sorted(os.listdir(root / "data"))
    with pytest.raises(UsageError):
        ask(bench, sql)
    assert sorted(os.listdir(root / "data")) == before


@pytest.mark.parametrize(
    "sql",
    [
        "FROM read_csv('{secret}')",
        "FROM '{secret}'",
        "FROM read_text('{secret}')",
        "FROM glob('{secret}*')",
        "COPY (SELECT 1) TO '{secret}.new'",
        "ATTACH '{secret}.db'",
        "SET enable_external_access = true",
        "SET allowed_paths = ['{secret}']",
    ],
)
def test_a_query_that_got_past_the_parser_still_reaches_no_file(
    bench: Workbench, root: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    secret = root.parent / "secret.csv"
    secret.write_text("x\nsecret\n")
    before = sorted(os.listdir(root.parent))
    past = References(sql.format(secret=secret), (), ("data/a.csv",), ("data/a.csv",), ())
    monkeypatch.setattr(sys.modules[query.__module__], "references", lambda _: past)
    with pytest.raises(UsageError):
        ask(bench, "whatever")
    assert sorted(os.listdir(root.parent)) == before


def test_a_link_out_of_the_workspace_is_not_read(bench: Workbench, root: Path) -> None:
    (root.parent / "secret.csv").write_text("x\n1\n")
    (root / "data/link.csv").symlink_to("../../secret.csv")
    for sql in ("FROM 'data/link.csv'", "FROM read_csv('data/link.csv')"):
        with pytest.raises(UsageError, match="symbolic link"):
            ask(bench, sql)
    found = rows(bench, "SELECT x FROM read_csv('data/*.csv', union_by_name = true) ORDER BY x")
    assert found == [[1], [2], [3], [7]]  # the link does not match


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="where descriptors have no names the files are copied")
def test_a_link_that_is_put_in_place_after_the_check_is_not_read(
    bench: Workbench, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is swapped when it has been opened and DuckDB has not begun."""
    (root.parent / "secret.csv").write_text("x\nsecret\n")
    true = type(bench.workspace).open

    def swapped(self: Any, path: str) -> int:
        fd = true(self, path)
        (root / "data/a.csv").unlink()
        (root / "data/a.csv").symlink_to("../../secret.csv")
        return fd

    monkeypatch.setattr(type(bench.workspace), "open", swapped)
    assert rows(bench, "SELECT y FROM 'data/a.csv'") == [["one"], ["two"]]


def test_rows_and_values_are_bounded(bench: Workbench) -> None:
    found = ask(bench, "SELECT i, repeat('x', 1000) AS s FROM range(5000) t(i)", max_rows=3)
    assert len(found["rows"]) == 3
    assert found["more"] == "there are more than these 3 rows"
    assert found["rows"][0][1] == "x" * 500 + " [cut]"
    assert len(ask(bench, "FROM range(5000)", max_rows=10**9)["rows"]) == 1_000


def test_values_that_json_does_not_know_become_text(bench: Workbench) -> None:
    found = rows(bench, "SELECT DATE '2026-01-02', 1.50::DECIMAL(5,2), 'a'::BLOB, NULL, [1,2], {'a': 1}, true, 'nan'::DOUBLE")
    assert found[0][:7] == ["2026-01-02", "1.50", "b'a'", None, "[1, 2]", "{'a': 1}", True]


def test_a_mistake_is_one_line_that_names_the_frames(bench: Workbench) -> None:
    bench.namespace = {"sales": pd.DataFrame({"n": [1]})}
    with pytest.raises(UsageError, match=r"nosuch.*frames here: sales") as caught:
        ask(bench, "SELECT nosuch FROM sales")
    assert "\n" not in str(caught.value)
    assert "ipyagent-query" not in str(caught.value)
    with pytest.raises(UsageError, match=r"there is no file none\.csv"):
        ask(bench, "FROM 'data/none.csv'")
    with pytest.raises(UsageError, match=r"no file matches data/\*\.tsv"):
        ask(bench, "FROM 'data/*.tsv'")


def test_variables_are_looked_at_in_the_main_thread_and_frames_stand_still(bench: Workbench) -> None:
    frame = pd.DataFrame({"n": [1]})
    threads: list[str] = []

    class Watched(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            threads.append(threading.current_thread().name)
            return super().get(key, default)

    async def in_main(function: Callable[[], T]) -> T:
        value = await asyncio.to_thread(lambda: _named("main of the kernel", function))
        frame["late"] = 2
        return value

    bench.namespace, bench.in_main = Watched(sales=frame), in_main
    assert list(ask(bench, "FROM sales")["columns"]) == ["n"]
    assert set(threads) == {"main of the kernel"}


def _named(name: str, function: Callable[[], T]) -> T:
    current = threading.current_thread()
    before, current.name = current.name, name
    try:
        return function()
    finally:
        current.name = before


def test_a_long_query_is_stopped_also_when_it_is_just_beginning(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    beginning = threading.Event()
    true = References.moved

    def moved(self: References, places: Mapping[str, str]) -> str:
        beginning.set()
        return true(self, places)

    monkeypatch.setattr(References, "moved", moved)

    async def stopped() -> None:
        task = asyncio.create_task(
            query(bench)("SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range % 7 = b.range % 5")
        )
        await asyncio.to_thread(beginning.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while any(t.name.startswith(("ipyagent-activity", "ipyagent-query")) for t in threading.enumerate()):
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(stopped(), 30))


def test_nothing_is_left_in_the_temporary_folder_and_no_file_open(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = sorted(os.listdir(tmp_path))
    count = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for sql in ("FROM 'data/*.csv'", "SELECT nosuch FROM 'data/a.csv'"):
        with contextlib.suppress(UsageError):
            ask(bench, sql)
    assert sorted(os.listdir(tmp_path)) == before
    assert count == (len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0)


def test_too_many_files_are_refused(bench: Workbench, root: Path) -> None:
    for number in range(201):
        (root / f"{number}.csv").write_text("x\n1\n")
    with pytest.raises(UsageError, match="201 files"):
        ask(bench, "FROM '*.csv'")
