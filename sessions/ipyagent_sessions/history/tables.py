"""The tables and views of one connection, over what `sources` found."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from ipyagent_sessions.events import ENGINE, SCHEMA_VERSION
from ipyagent_sessions.history.base import BASE, TOLD
from ipyagent_sessions.history.sources import Sources
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

CACHED: Final = f"session_id, {', '.join(_TYPES)}, triggered_events"
"""The columns of a file of the query cache."""


def define(connection: duckdb.DuckDBPyConnection, sources: Sources) -> None:
    """Make the views over `sources`."""
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE SCHEMA base")
    values = [
        f"coalesce(e.{name}::{kind.replace('JSON', 'VARCHAR')}, {_DEFAULTS.get(name, 'NULL')}) AS {name}"
        for name, kind in _TYPES.items()
    ]
    _table(
        connection,
        "tail",
        f"""SELECT session_id, {", ".join(values)}
        FROM (SELECT session_id, json_transform(line, '{json.dumps(_TYPES)}') AS e FROM incoming)""",
        sources.tail(),
    )
    _table(
        connection,
        "sessions",
        "SELECT * REPLACE (created::TIMESTAMPTZ AS created, held::BOOLEAN AS held) FROM incoming",
        sources.sessions(),
    )
    _table(connection, "lineage", "FROM incoming", sources.lineage())
    loose = "FROM base.tail"
    if sources.files:
        # explicit files: an empty store works, and what is half written never matches; hive: a folder named a=b is no column
        connection.execute("SET VARIABLE segments = ?", [[os.fspath(path) for path in sources.files]])
        loose = f"""SELECT session_id, {", ".join(_TYPES)}
            FROM read_parquet(getvariable('segments'), hive_partitioning = false) UNION ALL {loose}"""
    connection.execute(f"CREATE VIEW base.loose AS {loose}")
    connection.execute(f"CREATE VIEW {TOLD.name} AS {TOLD.sql}")
    connection.execute(f"CREATE VIEW base.kept_told AS {_kept(connection, sources)}")
    for view in (*BASE, *VIEWS):
        connection.execute(f"CREATE VIEW {view.name} AS {view.sql}")
    connection.execute(f"CREATE MACRO {LINEAGE.name} AS TABLE {LINEAGE.sql}")


def _kept(connection: duckdb.DuckDBPyConnection, sources: Sources) -> str:
    """What is read from the query cache, as SQL; the sessions that have changed since are left out, file by file."""
    parts = []
    whole = [path for path, gone in sources.kept if not gone]
    if whole:
        connection.execute("SET VARIABLE kept = ?", [[os.fspath(path) for path in whole]])
        parts.append(f"SELECT {CACHED} FROM read_parquet(getvariable('kept'), hive_partitioning = false)")
    for number, (path, gone) in enumerate((path, gone) for path, gone in sources.kept if gone):
        connection.execute(f"SET VARIABLE kept{number} = ?", [[os.fspath(path)]])
        listed = ", ".join(f"'{session_id}'" for session_id in gone)  # ids are letters and digits
        parts.append(
            f"SELECT {CACHED} FROM read_parquet(getvariable('kept{number}'), hive_partitioning = false) "
            f"WHERE session_id NOT IN ({listed})"
        )
    return " UNION ALL ".join(parts) or f"SELECT {CACHED} FROM base.loose_told WHERE false"


def _table(connection: duckdb.DuckDBPyConnection, name: str, select: str, rows: pa.Table) -> None:
    """Copy rows into a table of `base`: a registered Arrow table would show up in SHOW TABLES."""
    connection.register("incoming", rows)
    connection.execute(f"CREATE TABLE base.{name} AS {select}")
    connection.unregister("incoming")
