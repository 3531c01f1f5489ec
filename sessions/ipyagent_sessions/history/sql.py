"""One SELECT over all sessions (R100).

DuckDB runs in memory: an open DuckDB file would lock out every other process.  Sealed segments are read where they are, tails
of journals go through our own reader, since one torn line would fail a whole read of JSON.  The views are made anew for each
query, so a query sees what is on disk when it begins.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from ipyagent_sessions.errors import IpyagentError, UsageError
from ipyagent_sessions.history import building, guard, tables
from ipyagent_sessions.history.guard import Vetted
from ipyagent_sessions.history.result import Result
from ipyagent_sessions.history.sources import Sources, gather
from ipyagent_sessions.history.views import LINEAGE, VIEWS

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from ipyagent_sessions.place import Place

_READ_ALL: Final = ", ".join(
    [
        "bit_xor(hash(COLUMNS(*)))",
        *(f"bit_xor(hash(decode(encode({name}::VARCHAR))))" for name in tables.TEXTS),
        "bool_and(CASE WHEN json_valid(payload::VARCHAR) THEN true ELSE error('no JSON') END)",
    ]
)
Params = Sequence[Any] | Mapping[str, Any]

_TRIES: Final = 5
_HEARS_S: Final = 0.2
"""How long an interrupt may go unheard."""
_HINT: Final = f"the views are {', '.join(view.name for view in VIEWS)}; see columns with: DESCRIBE events"


def query(store: Place, sql: str, params: Params | None = None) -> Result:
    """The result of one SELECT over the views of `views.VIEWS`, with `?` or `$name` taken from `params`.

    Raises UsageError when the query is not one SELECT, or when DuckDB refuses it, and IpyagentError when a person interrupts
    it.  What could not be read of the store is named in `Result.problems` and does not stop the query.
    """
    try:
        return _answer(store, sql, params)
    except KeyboardInterrupt:
        raise IpyagentError("the query was interrupted", hint="a narrower WHERE makes it shorter") from None


def _answer(store: Place, sql: str, params: Params | None) -> Result:
    import duckdb

    distrusted: set[Path] = set()
    vanished = 0
    while True:
        with _database() as connection:
            statement = guard.vetted(connection, sql)
            sources = gather(store, distrusted)
            try:
                _fill(connection, sources, statement)
                table = _run(connection, statement.text, params)
            except (duckdb.Error, UnicodeDecodeError) as error:
                suspects = _suspects(sources.paths, error)
                gone = {path for path in suspects if not os.path.lexists(path)}
                if not suspects or vanished >= _TRIES:
                    raise UsageError(guard.one_line(error), hint=_HINT) from None
                vanished += bool(gone)  # merged away since it was listed: look again
                distrusted |= suspects - gone
                building.drop(store, {int(path.stem) for path, _ in sources.kept if path in suspects})
                continue
        if sources.loose >= building.WORTHWHILE:
            building.catch_up(store)
        return Result(table, sources.problems)


def describe() -> dict[str, list[tuple[str, str]]]:
    """The columns of each view as (name, type), for the documentation."""
    with _database() as connection:
        _fill(connection, Sources(), None)
        found: dict[str, list[tuple[str, str]]] = {}
        for view in (*VIEWS, LINEAGE):
            source = "SELECT * FROM lineage('')" if view is LINEAGE else view.name
            found[view.name] = [(str(row[0]), str(row[1])) for row in connection.execute(f"DESCRIBE {source}").fetchall()]
        return found


def _suspects(files: list[Path], error: Exception) -> set[Path]:
    """The segments that DuckDB cannot read: those that `error` names, or found by reading, unless the query is to blame."""
    import duckdb

    named = {path for path in files if path.name in str(error) and os.fspath(path) in str(error)}
    if named or isinstance(error, duckdb.CatalogException | duckdb.BinderException | duckdb.ParserException):
        return named
    with duckdb.connect(":memory:") as connection:
        return set(_unreadable(connection, files))


def _unreadable(connection: duckdb.DuckDBPyConnection, files: list[Path]) -> list[Path]:
    """The files of which some byte that a query can need is not readable, is no text, or is no JSON where that has to be."""
    import duckdb

    if not files:
        return []
    try:
        paths = [os.fspath(path) for path in files]
        connection.execute(f"SELECT {_READ_ALL} FROM read_parquet(?, hive_partitioning = false)", [paths]).fetchall()
    except (duckdb.Error, UnicodeDecodeError):  # the message about bytes that are no text can be none itself
        half = len(files) // 2
        return files if not half else [*_unreadable(connection, files[:half]), *_unreadable(connection, files[half:])]
    return []


def _run(connection: duckdb.DuckDBPyConnection, statement: str, params: Params | None) -> pa.Table:
    """The rows.  Python hears of an interrupt only between two calls: the query runs in a thread that can be told to stop."""
    found: Future[pa.Table] = Future()

    def work() -> None:
        try:
            found.set_result(connection.sql(statement, params=params).to_arrow_table())
        except BaseException as error:  # noqa: BLE001  # it belongs to whoever asked
            found.set_exception(error)

    worker = Thread(target=work, name="ipyagent-sql")
    try:
        worker.start()
        while not found.done():  # a signal that comes just before a wait is heard at its end, so none is endless
            wait([found], timeout=_HEARS_S)
        return found.result()
    except KeyboardInterrupt:
        _stop(connection, worker, found)
        raise


def _stop(connection: duckdb.DuckDBPyConnection, worker: Thread, found: Future[pa.Table]) -> None:
    """Return once the query has ended, however often a person presses.

    What the thread says of itself is not asked: after an interrupted wait for it, it may call a running thread ended.
    """
    import duckdb

    with contextlib.suppress(KeyboardInterrupt):
        wait([found], timeout=0.1)
    while not found.done() and worker.ident is not None:  # without an identity it had not begun
        with contextlib.suppress(KeyboardInterrupt):
            with contextlib.suppress(duckdb.Error):  # it refuses while the query is being begun: once more, then
                connection.interrupt()
            wait([found], timeout=0.1)


@contextlib.contextmanager
def _database() -> Generator[duckdb.DuckDBPyConnection]:
    """An empty database in memory, which spills to a folder of its own."""
    import duckdb

    spill = Path(tempfile.gettempdir(), f"ipyagent-sql-{os.getpid()}-{secrets.token_hex(4)}")
    options: dict[str, Any] = {
        "temp_directory": os.fspath(spill),
        "python_enable_replacements": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
    }
    try:
        with duckdb.connect(":memory:", config=options) as connection:
            yield connection
    finally:
        shutil.rmtree(spill, ignore_errors=True)


def _fill(connection: duckdb.DuckDBPyConnection, sources: Sources, statement: Vetted | None) -> None:
    """Make the views; after that the database can reach the files behind them, and nothing else, read only."""
    if statement is None:
        tables.define(connection, sources)
    else:
        tables.define(connection, sources, statement.text, told=statement.may_use("triggered_events"))
    connection.execute("SET allowed_paths = ?", [[os.fspath(path) for path in sources.paths]])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
