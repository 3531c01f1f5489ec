"""query: SQL over the user's data frames and over tables in files of the workspace.

DuckDB runs in memory, for one query.  It may open nothing but the files that the query names, and those are reached as the
other tools reach them: DuckDB is given links to descriptors that `workspace` has opened (copies where a platform has no such
links), in a folder that is nobody else's.  The query is judged first (`history.guard`) and locked in afterwards.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ipyagent_sessions.agent.tools.declare import Tool
from ipyagent_sessions.agent.tools.list_files import no_folder
from ipyagent_sessions.agent.tools.tables import HINT, Frames, References, frames_named, references
from ipyagent_sessions.agent.tools.workbench import Workbench
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.history import guard
from ipyagent_sessions.run.threads import Threads

if TYPE_CHECKING:
    import duckdb

_MOST_ROWS: Final = 1_000
_MOST_FILES: Final = 200
"""Files of one query: each is an open descriptor."""
_AGAIN_S: Final = 0.05
_WIDEST: Final = 500
"""Characters of one value."""


def query(bench: Workbench) -> Tool:
    """The tool for this workbench.  Effect none."""

    async def query(sql: str, max_rows: int = 100) -> dict[str, Any]:
        """Query data with SQL (DuckDB): the notebook's data frames, by name, and CSV, Parquet and JSON files of the workspace.

        One SELECT, for example: SELECT city, avg(price) FROM sales JOIN 'data/cities.csv' USING (city) GROUP BY ALL.
        DESCRIBE 'data/cities.csv' gives the columns, SUMMARIZE sales their statistics.

        Args:
            sql: one statement that only reads.
            max_rows: how many rows to give, at most 1000.
        """
        wanted = references(sql)
        frames = await frames_named(bench, wanted.tables)
        rows = min(max(max_rows, 1), _MOST_ROWS)
        stop = _Stop()
        threads = Threads()
        try:
            ran = await threads.submit(lambda: _answer(bench, wanted, frames, rows, stop))
            answer: dict[str, Any] = ran.value
            return answer
        finally:
            stop.now()
            threads.close()

    return Tool(query, effect="none", timeout="5m", unusable=lambda: no_folder(bench), more="select less, or aggregate")


class _Stop:
    """Ends a query from another thread, also one that has not begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._stopped = False

    def now(self) -> None:
        """End it, if it has not ended.  DuckDB forgets an interrupt that comes just before a query begins, so this insists."""
        with self._lock:
            self._stopped = True
            running = self._connection is not None
        if running:
            threading.Thread(target=self._insist, name="ipyagent-query-stop", daemon=True).start()

    def _insist(self) -> None:
        while True:
            with self._lock:
                if self._connection is None:
                    return
                self._connection.interrupt()
            time.sleep(_AGAIN_S)

    @contextlib.contextmanager
    def reaching(self, connection: duckdb.DuckDBPyConnection) -> Generator[None]:
        with self._lock:
            if self._stopped:
                raise UsageError("the query was stopped")
            self._connection = connection
        try:
            yield
        finally:
            with self._lock:
                self._connection = None


def _answer(bench: Workbench, wanted: References, frames: Frames, rows: int, stop: _Stop) -> dict[str, Any]:
    import duckdb

    with ExitStack() as stack:
        mirror = stack.enter_context(_folder())
        places, links = _mirrored(bench, wanted.files, mirror, stack)
        connection = stack.enter_context(_connected(mirror))
        stack.enter_context(stop.reaching(connection))
        try:
            for name, frame in frames.items():
                connection.register(name, frame)
            for name in wanted.names:
                view, path = name.replace('"', '""'), places[name].replace("'", "''")
                connection.execute(f"CREATE VIEW \"{view}\" AS FROM '{path}'")
            connection.execute("SET allowed_directories = ?", [[os.path.join(mirror, "files")]])
            connection.execute("SET allowed_paths = ?", [links])
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            return _rows(connection.execute(wanted.moved(places)), rows)
        except duckdb.InterruptException:
            raise UsageError("the query was stopped") from None
        except duckdb.Error as error:
            said = guard.one_line(error).replace(f"{mirror}/files/", "")
            there = f"; frames here: {', '.join(sorted(frames))}" if frames else ""
            raise UsageError(said, hint=HINT + there) from None


def _rows(found: duckdb.DuckDBPyConnection, most: int) -> dict[str, Any]:
    columns = {str(column[0]): str(column[1]) for column in found.description or ()}
    rows = found.fetchmany(most + 1)
    answer: dict[str, Any] = {"columns": columns, "rows": [[_value(v) for v in row] for row in rows[:most]]}
    if len(rows) > most:
        answer["more"] = f"there are more than these {most} rows"
    return answer


def _value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]} [cut]"


@contextlib.contextmanager
def _folder() -> Generator[str]:
    """A folder that nobody else can look into."""
    made = os.path.realpath(tempfile.mkdtemp(prefix="ipyagent-query-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _mirrored(bench: Workbench, files: Iterable[str], mirror: str, stack: ExitStack) -> tuple[dict[str, str], list[str]]:
    """Put what `files` name into `mirror`, in folders of the same names.

    Gives where each name of `files` lies there, a pattern as a pattern, and the paths of all files.
    """
    places: dict[str, str] = {}
    found: dict[str, None] = {}
    for name in files:
        pattern = _is_pattern(name)
        matching = _matching(bench, name) if pattern else [bench.workspace.normal(name)]
        if not matching:
            raise UsageError(f"no file matches {name}", hint="see what there is with list_files")
        places[name] = os.path.join(mirror, "files", name.removeprefix("./") if pattern else matching[0])
        found.update(dict.fromkeys(matching))
    if len(found) > _MOST_FILES:
        raise UsageError(f"these are {len(found):,} files, and {_MOST_FILES} can be read at once", hint="name fewer of them")
    return places, [_linked(bench, name, Path(mirror, "files", name), stack) for name in found]


def _linked(bench: Workbench, name: str, path: Path, stack: ExitStack) -> str:
    """Make `path` the file `name` of the workspace."""
    fd = bench.workspace.open(name)
    stack.callback(os.close, fd)
    path.parent.mkdir(parents=True, exist_ok=True)
    if sys.platform == "linux":
        path.symlink_to(f"/proc/{os.getpid()}/fd/{fd}")
    else:
        with os.fdopen(os.dup(fd), "rb") as source, open(path, "wb") as target:
            shutil.copyfileobj(source, target)
    return os.fspath(path)


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _matching(bench: Workbench, pattern: str) -> list[str]:
    """The files of the workspace that match; a * stops at a /, ** does not."""
    fixed = pattern[: min(pattern.find(sign) for sign in "*?[" if sign in pattern)].rpartition("/")[0] or "."
    wanted = pattern.removeprefix("./").split("/")
    return [e.path for e in bench.workspace.walk(fixed) if e.kind == "file" and _fits(e.path.split("/"), wanted)]


def _fits(path: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return _fits(path, pattern[1:]) or (bool(path) and _fits(path[1:], pattern))
    return bool(path) and fnmatch.fnmatchcase(path[0], pattern[0]) and _fits(path[1:], pattern[1:])


@contextlib.contextmanager
def _connected(mirror: str) -> Generator[duckdb.DuckDBPyConnection]:
    import duckdb

    options: dict[str, Any] = {
        "temp_directory": os.path.join(mirror, "spill"),
        "python_enable_replacements": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
    }
    with duckdb.connect(":memory:", config=options) as connection:
        yield connection
