"""The tables and views of one connection, over what `sources` found."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Final

from ipyagent_sessions.events import ENGINE, SCHEMA_VERSION
from ipyagent_sessions.history.base import BASE, TOLD, UNTOLD
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

_NONE: Final = f"""SELECT {
    ", ".join(
        f"NULL::{kind.replace('JSON', 'VARCHAR')} AS {name}" for name, kind in {"session_id": "VARCHAR", **_TYPES}.items()
    )
} WHERE false"""
"""No event at all."""

TEXTS: Final = ("session_id", *(name for name, kind in _TYPES.items() if kind in ("VARCHAR", "JSON")))
"""The columns that hold text."""

KEPT: Final = f"session_id, {', '.join(_TYPES)}, triggered_events"
"""The columns of a file of the query cache.  A payload that is JSON there need not be parsed to be one in a query."""


def define(
    connection: duckdb.DuckDBPyConnection, sources: Sources, statement: str | None = None, *, told: bool = True
) -> None:
    """Make the views over `sources`: all, or those that `statement` can need, since all of them take a tenth of a second.

    With `told` the events say what they triggered; without it a query that asks for that fails.
    """
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE SCHEMA base")
    wanted, text = _wanted(statement)
    everyone = sources.everyone() if "base.sessions" in text or "base.lineage" in text else {}
    if "base.sessions" in text:
        select = "SELECT * REPLACE (created::TIMESTAMPTZ AS created, held::BOOLEAN AS held) FROM incoming"
        _table(connection, "sessions", select, sources.sessions(everyone))
    if "base.lineage" in text:
        _table(connection, "lineage", "FROM incoming", lineage(everyone))
    _events(connection, sources, text, TOLD if told else UNTOLD)
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


def _events(connection: duckdb.DuckDBPyConnection, sources: Sources, text: str, told: str) -> None:
    """Make the views of all events that stand in `text`.  A session's are loose or in the cache, and a side that has none is
    left out: to plan a query over it takes milliseconds."""
    loose, kept = _loose(connection, sources), _kept(connection, sources)
    of_events, of_told = list[str](), list[str]()
    if loose or not kept:
        connection.execute(f"CREATE VIEW base.loose AS {loose or _NONE}")
        of_events.append("FROM base.loose")
        of_told.append(f"SELECT * REPLACE (payload::JSON AS payload) FROM ({told})")
    if kept:
        of_events.append(f"SELECT * EXCLUDE (triggered_events) REPLACE (payload::VARCHAR AS payload) FROM ({kept})")
        of_told.append(kept)
    for name, sides in (("base.events", of_events), ("base.told", of_told)):
        if name in text:
            connection.execute(f"CREATE VIEW {name} AS {' UNION ALL '.join(sides)}")


def _loose(connection: duckdb.DuckDBPyConnection, sources: Sources) -> str:
    """What is read from the files of the sessions themselves, as SQL; empty when nothing is."""
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
    return " UNION ALL ".join(parts)


def _kept(connection: duckdb.DuckDBPyConnection, sources: Sources) -> str:
    """What is read from the query cache, as SQL, without the sessions that have changed since; empty when nothing is."""
    parts = []
    whole = [path for path, gone in sources.kept if not gone]
    if whole:
        connection.execute("SET VARIABLE kept = ?", [[os.fspath(path) for path in whole]])
        parts.append(f"SELECT {KEPT} FROM read_parquet(getvariable('kept'), hive_partitioning = false)")
    for number, (path, gone) in enumerate((path, gone) for path, gone in sources.kept if gone):
        connection.execute(f"SET VARIABLE kept{number} = ?", [[os.fspath(path)]])
        listed = ", ".join(f"'{session_id}'" for session_id in gone)  # ids are letters and digits
        parts.append(
            f"SELECT {KEPT} FROM read_parquet(getvariable('kept{number}'), hive_partitioning = false) "
            f"WHERE session_id NOT IN ({listed})"
        )
    return " UNION ALL ".join(parts)


def _table(connection: duckdb.DuckDBPyConnection, name: str, select: str, rows: pa.Table) -> None:
    """Copy rows into a table of `base`: a registered Arrow table would show up in SHOW TABLES."""
    connection.register("incoming", rows)
    connection.execute(f"CREATE TABLE base.{name} AS {select}")
    connection.unregister("incoming")
