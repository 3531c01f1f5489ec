"""Which tables and files a query names, and the user's data frames among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from ipyagent_sessions.agent.tools.workbench import Workbench
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.history import guard

Frames = Mapping[str, Any]

READERS: Final = frozenset(
    {
        "read_csv",
        "read_csv_auto",
        "read_parquet",
        "parquet_scan",
        "read_json",
        "read_json_auto",
        "read_ndjson",
        "read_ndjson_auto",
    }
)
HINT: Final = "tables are the notebook's data frames by their names, and files in quotes: FROM 'data/x.csv'"
_FRAMES: Final = frozenset(
    {
        ("pandas", "DataFrame"),
        ("polars", "DataFrame"),
        ("polars", "LazyFrame"),
        ("pyarrow", "Table"),
        ("pyarrow", "RecordBatch"),
    }
)
_SUFFIXES: Final = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson")
_PACKED: Final = (".gz", ".zst")


class References(Struct, frozen=True):
    """A checked statement, and what it names.

    `tables` are names that may be those of frames, `names` files that stand as tables (FROM 'x.csv'), `files` all files and
    patterns.  `spots` are the texts by which functions name files: offset and length in bytes of the statement, and the
    name.
    """

    statement: str
    tables: tuple[str, ...]
    names: tuple[str, ...]
    files: tuple[str, ...]
    spots: tuple[tuple[int, int, str], ...]

    def moved(self, places: Mapping[str, str]) -> str:
        """The statement with the files that its functions read taken from elsewhere: `places` says where, by name."""
        raw = self.statement.encode()
        for at, length, name in sorted(self.spots, reverse=True):
            literal = "'" + places[name].replace("'", "''") + "'"
            raw = raw[:at] + literal.encode() + raw[at + length :]
        return raw.decode()


def references(sql: str) -> References:
    """What `sql` names.  Raises UsageError when it is not one statement that only reads, or reads what it must not."""
    import duckdb

    with duckdb.connect(":memory:") as parser:
        try:
            statement = guard.vetted(parser, sql, also=READERS)
        except UsageError as error:
            raise UsageError(error.message, hint=f"one SELECT that reads tables is possible; {HINT}") from None
    tables: dict[str, None] = {}
    names: dict[str, None] = {}
    spots: list[tuple[int, int, str]] = []
    for node in () if statement.explains else statement.nodes:
        if node.get("type") == "BASE_TABLE" and not node.get("schema_name"):
            name = str(node["table_name"])
            (names if _is_file(name) else tables)[name] = None
        elif node.get("type") == "TABLE_FUNCTION" and str(node["function"].get("function_name", "")).lower() in READERS:
            spots += _literals(node["function"])
    files = dict.fromkeys([*names, *(name for _, _, name in spots)])
    return References(statement.text, tuple(tables), tuple(names), tuple(files), tuple(spots))


async def frames_named(bench: Workbench, names: Iterable[str]) -> dict[str, Any]:
    """The data frames among the user's variables of these names, as they are now.

    Variables are looked at in the kernel's main thread; a pandas frame is copied without its data, so that columns that the
    user adds meanwhile do not disturb.
    """
    wanted = [name for name in names if name.isidentifier()]
    namespace = bench.namespace
    if not wanted or namespace is None:
        return {}

    def look() -> dict[str, Any]:
        return {name: _still(namespace[name]) for name in wanted if _is_frame(namespace.get(name))}

    return look() if bench.in_main is None else await bench.in_main(look)


def _is_frame(value: Any) -> bool:
    """Whether DuckDB can read it; told by its class, so that no library is imported for it."""
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(value).__mro__}
    return not kinds.isdisjoint(_FRAMES)


def _still(frame: Any) -> Any:
    """The frame as it is now."""
    kinds = {kind.__name__ for kind in type(frame).__mro__}
    if "LazyFrame" in kinds:
        return frame.collect()
    if "RecordBatch" in kinds:
        import pyarrow as pa

        return pa.Table.from_batches([frame])
    return frame.copy(deep=False) if hasattr(frame, "iloc") else frame


def _is_file(name: str) -> bool:
    low = name.lower()
    for packed in _PACKED:
        low = low.removesuffix(packed)
    return low.endswith(_SUFFIXES)


def _literals(function: dict[str, Any]) -> Iterator[tuple[int, int, str]]:
    """The file names in the first argument of a reading function: one text, or a list of texts."""
    arguments = function["arguments"]
    first = arguments[0]["expression"] if arguments else {}
    if first.get("class") == "FUNCTION" and first.get("function_name") == "list_value":
        listed = [argument["expression"] for argument in first["arguments"]]
    else:
        listed = [first]
    for expression in listed:
        name = _text(expression)
        if name is None:
            raise UsageError(
                f"{function['function_name']} needs the names of its files as texts",
                hint="read_csv('data/x.csv', delim = ';')",
            )
        yield int(expression["query_location"]), int(expression["query_location_length"]), name


def _text(expression: dict[str, Any]) -> str | None:
    """The text of a constant; None for another expression."""
    literal = expression.get("literal") or {}
    return str(literal["text"]) if expression.get("class") == "CONSTANT" and literal.get("kind") == "STRING" else None
