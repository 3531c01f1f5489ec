"""The tables and views of one connection, over what `sources` found."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Final

from ipyagent_sessions.events import ENGINE, SCHEMA_VERSION
from ipyagent_sessions.history.base import BASE, TOLD, UNTOLD
from ipyagent_sessions.history.guard import may_use
from ipyagent_sessions.history.sources import Sources, lineage
from ipyagent_sessions.history.views import LINEAGE, VIEWS

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_TYPES: Final = {
    "seq": "BIGINT",
    "event_type": "VARCHAR",
    "timestamp": "TIMESTAMPTZ",
    "recorded_at": "TIMESTAMPTZ",
    "task_id": "VARCHAR",
    "activity_id": "VARCHAR",
    "attempt": "INTEGER",
    "actor": "VARCHAR",
    "payload": "JSON",
    "parent_event": "BIGINT",
    "schema_version": "SMALLINT",
    "ignorable": "BOOLEAN",
    "agent_version": "VARCHAR",
    "execution_time_ms": "DOUBLE",
    "cpu_s": "DOUBLE",
    "rss_bytes": "BIGINT",
    "input_tokens": "BIGINT",
    "output_tokens": "BIGINT",
    "cost_usd": "DOUBLE",
}
_DEFAULTS: Final = {
    "recorded_at": "e.timestamp",
    "actor": f"'{ENGINE}'",
    "payload": "'{}'",
    "schema_version": f"{SCHEMA_VERSION}::SMALLINT",
    "ignorable": "false",
}
"""The fields of `events.Event`: their types in a line, and what stands for one that a line leaves out."""

_KEPT: Final = f"session_id, {', '.join(_TYPES)}, triggered_events"
CACHED: Final = _KEPT.replace("payload", "payload::JSON AS payload")
"""The columns of a file of the query cache.  A payload that is JSON there need not be parsed to be one in a query."""


def define(connection: duckdb.DuckDBPyConnection, sources: Sources, statement: str | None = None) -> None:
    """Make the views over `sources`: all, or those that `statement` can need, since all of them take a tenth of a second."""
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE SCHEMA base")
    wanted, text = _wanted(statement)
    everyone = sources.everyone() if "base.sessions" in text or "base.lineage" in text else {}
    if "base.sessions" in text:
        select = "SELECT * REPLACE (created::TIMESTAMPTZ AS created, held::BOOLEAN AS held) FROM incoming"
        _table(connection, "sessions", select, sources.sessions(everyone))
    if "base.lineage" in text:
        _table(connection, "lineage", "FROM incoming", lineage(everyone))
    connection.execute(f"CREATE VIEW base.loose AS {_loose(connection, sources)}")
    told = TOLD if statement is None or may_use(connection, statement, "triggered_events") else UNTOLD
    connection.execute(f"CREATE VIEW {told.name} AS {told.sql}")
    connection.execute(f"CREATE VIEW base.kept_told AS {_kept(connection, sources)}")
    for view in _VIEWS:
        if view.name in wanted:
            made = f"MACRO {view.name} AS TABLE" if view is LINEAGE else f"VIEW {view.name} AS"
            connection.execute(f"CREATE {made} {view.sql}")


_VIEWS: Final = (*BASE, *VIEWS, LINEAGE)
"""In an order in which each stands on those before it."""
_LISTING: Final = re.compile(r"\b(show|describe|summarize|information_schema|pragma\w*|duckdb\w*)\b", re.IGNORECASE)


def _wanted(statement: str | None) -> tuple[set[str], str]:
    """The views whose names stand in a statement, and those that they stand on, with the text of all that; all views for one
    that lists what there is."""
    if statement is None or _LISTING.search(statement):
        return {view.name for view in _VIEWS}, " ".join(view.sql for view in _VIEWS)
    text, wanted = statement.lower(), set[str]()
    for view in reversed(_VIEWS):
        name = view.name.partition("(")[0]
        if re.search(rf"(?<![\w.]){re.escape(name)}\b" if "." in name else rf"\b{name}\b", text):
            wanted.add(view.name)
            text += view.sql.lower()
    return wanted, text


def _loose(connection: duckdb.DuckDBPyConnection, sources: Sources) -> str:
    """What is read from the files of the sessions themselves, as SQL."""
    names, parts = ", ".join(_TYPES), []
    if sources.files:
        # explicit files: an empty store works, and what is half written never matches; hive: a folder named a=b is no column
        connection.execute("SET VARIABLE segments = ?", [[os.fspath(path) for path in sources.files]])
        parts.append(f"SELECT session_id, {names} FROM read_parquet(getvariable('segments'), hive_partitioning = false)")
    if sources.lines:
        values = [
            f"coalesce(e.{name}::{kind.replace('JSON', 'VARCHAR')}, {_DEFAULTS.get(name, 'NULL')}) AS {name}"
            for name, kind in _TYPES.items()
        ]
        parsed = f"SELECT session_id, json_transform(line, '{json.dumps(_TYPES)}') AS e FROM incoming"
        _table(connection, "tail", f"SELECT session_id, {', '.join(values)} FROM ({parsed})", sources.tail())
        parts.append("FROM base.tail")
    return " UNION ALL ".join(parts) or f"SELECT {_nothing('VARCHAR')} WHERE false"


def _nothing(payload: str) -> str:
    """The columns of no row at all: DuckDB leaves out what a view adds to it."""
    kinds = {"session_id": "VARCHAR", **_TYPES, "payload": payload}
    return ", ".join(f"NULL::{kind} AS {name}" for name, kind in kinds.items())


def _kept(connection: duckdb.DuckDBPyConnection, sources: Sources) -> str:
    """What is read from the query cache, as SQL; the sessions that have changed since are left out, file by file."""
    parts = []
    whole = [path for path, gone in sources.kept if not gone]
    if whole:
        connection.execute("SET VARIABLE kept = ?", [[os.fspath(path) for path in whole]])
        parts.append(f"SELECT {_KEPT} FROM read_parquet(getvariable('kept'), hive_partitioning = false)")
    for number, (path, gone) in enumerate((path, gone) for path, gone in sources.kept if gone):
        connection.execute(f"SET VARIABLE kept{number} = ?", [[os.fspath(path)]])
        listed = ", ".join(f"'{session_id}'" for session_id in gone)  # ids are letters and digits
        parts.append(
            f"SELECT {_KEPT} FROM read_parquet(getvariable('kept{number}'), hive_partitioning = false) "
            f"WHERE session_id NOT IN ({listed})"
        )
    return " UNION ALL ".join(parts) or f"SELECT {_nothing('JSON')}, []::VARCHAR[] AS triggered_events WHERE false"


def _table(connection: duckdb.DuckDBPyConnection, name: str, select: str, rows: pa.Table) -> None:
    """Copy rows into a table of `base`: a registered Arrow table would show up in SHOW TABLES."""
    connection.register("incoming", rows)
    connection.execute(f"CREATE TABLE base.{name} AS {select}")
    connection.unregister("incoming")
