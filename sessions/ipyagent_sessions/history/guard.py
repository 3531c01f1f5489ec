"""One SELECT and nothing else.

DuckDB's own parser judges, never a pattern.  Its statement type is not enough: `WITH x AS (COPY ... TO ...) SELECT` is a
SELECT to it and writes a file, and `EXPLAIN ANALYZE COPY` runs the copy.  So the parsed tree is looked at as well: every query
inside must read, and tables come from views or from the few functions of `_FUNCTIONS`, which leaves out those that read files,
change settings, or run SQL that is hidden in a text.  DuckDB's own lock (`sql._fill`) stands behind this.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ipyagent_sessions.errors import UsageError

if TYPE_CHECKING:
    import duckdb

_READING: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_FUNCTIONS: Final = frozenset(
    {
        "lineage",
        "unnest",
        "range",
        "generate_series",
        "repeat",
        "json_each",
        "json_tree",
        "duckdb_columns",
        "duckdb_functions",
        "duckdb_keywords",
        "duckdb_tables",
        "duckdb_types",
        "duckdb_views",
        "pragma_version",
    }
)
_ALL_OF_IT: Final = frozenset({"STAR", "POSITIONAL_REFERENCE", "PIVOT"})
_HINT: Final = "one SELECT over the views is possible; see them with: SHOW TABLES"


class Vetted(NamedTuple):
    """A statement that may run: its text, all objects of the parsed tree of the SELECT in it, and whether it is an EXPLAIN of
    that."""

    text: str
    nodes: list[dict[str, Any]]
    explains: bool = False

    def may_use(self, column: str) -> bool:
        """Whether the result can depend on `column` of some table: it is named, or a whole row is asked for."""
        tables = {
            str(n.get(key)).lower() for n in self.nodes if n.get("type") == "BASE_TABLE" for key in ("alias", "table_name")
        }
        for node in self.nodes:
            names = [str(name).lower() for name in (*node.get("column_names", ()), *node.get("using_columns", ()))]
            if column in names or (node.get("type") == "COLUMN_REF" and names[-1] in tables):
                return True
            if str(node.get("type")) in _ALL_OF_IT or node.get("ref_type") == "NATURAL" or node.get("column_name_alias"):
                return True
        return False


def vetted(connection: duckdb.DuckDBPyConnection, sql: str, *, also: frozenset[str] = frozenset()) -> Vetted:
    """`sql` as the one statement to run: a SELECT (also FROM first, DESCRIBE, SUMMARIZE, SHOW) or an EXPLAIN of one.

    `also` are further table functions that the caller makes safe.  Raises UsageError that names what is refused.
    """
    import duckdb

    statement = _only(connection, sql)
    if statement.type == duckdb.StatementType.EXPLAIN:
        prefix, rest = _explained(statement.query)
        inner = _only(connection, rest)
        return Vetted(f"{prefix} {inner.query}", _reading(connection, inner, also), explains=True)
    return Vetted(statement.query, _reading(connection, statement, also))


def one_line(error: Exception) -> str:
    """DuckDB's message without its picture of the query."""
    lines = str(error).partition("\nLINE ")[0].splitlines()
    return " ".join(line.strip() for line in lines if line.strip() and not line.startswith("Did you mean"))


def _only(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    import duckdb

    try:
        sql.encode()
        found = connection.extract_statements(sql)
    except UnicodeEncodeError as error:
        raise UsageError(f"character {error.start + 1} of the query is no text in UTF-8", hint=_HINT) from None
    except duckdb.Error as error:
        raise UsageError(one_line(error)) from None
    if len(found) != 1:
        what = f"{len(found)} statements" if found else "an empty query"
        raise UsageError(f"{what} cannot be run", hint=_HINT)
    return found[0]


def _reading(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement, also: frozenset[str]) -> list[dict[str, Any]]:
    """All objects of the tree of a statement that only reads, from where it may.  Raises UsageError for any other."""
    import duckdb

    if statement.type != duckdb.StatementType.SELECT:
        word = next((text for text, _ in _words(statement.query)), "it").upper()
        raise UsageError(f"{word} is refused: a query only reads", hint=_HINT)
    found = list(_nodes(connection, statement.query))
    for node in found:
        kind = node.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _READING:
            raise UsageError(f"{kind.partition('_')[0]} inside a query is refused: a query only reads", hint=_HINT)
        if kind == "TABLE_FUNCTION":
            name = str(node["function"].get("function_name", "")).lower()
            if name not in _FUNCTIONS and name not in also:
                raise UsageError(f"the table function {name}() is refused: a query reads the views only", hint=_HINT)
    return found


def _nodes(connection: duckdb.DuckDBPyConnection, statement: str) -> Iterator[dict[str, Any]]:
    """All objects of the parsed tree of a SELECT.  Raises UsageError for one that DuckDB does not show as a tree."""
    row = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchone()
    tree = json.loads(row[0]) if row else {"error": True, "error_message": "no tree"}
    if tree["error"]:
        raise UsageError(f"this form of query cannot be checked and is refused: {tree['error_message']}", hint=_HINT)
    yield from below(tree["statements"])


def below(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects of a JSON tree."""
    open_: list[Any] = [tree]
    while open_:
        node = open_.pop()
        if isinstance(node, dict):
            yield node
            open_ += node.values()
        elif isinstance(node, list):
            open_ += node


def _words(sql: str) -> Iterator[tuple[str, int]]:
    """The words and signs of a statement without comments, each with its offset in characters."""
    import duckdb

    raw = sql.encode()  # offsets are in bytes
    found = [(at, kind) for at, kind in duckdb.tokenize(sql) if kind != duckdb.token_type.comment]
    for (at, _), following in zip(found, [*(at for at, _ in found[1:]), len(raw)], strict=True):
        yield raw[at:following].decode().split()[0], len(raw[:at].decode())


def _explained(sql: str) -> tuple[str, str]:
    """EXPLAIN or EXPLAIN ANALYZE, and the statement behind it.  Options in parentheses are refused."""
    words = list(_words(sql))
    skip = 2 if len(words) > 1 and words[1][0].upper() == "ANALYZE" else 1
    if len(words) > 1 and words[1][0].startswith("("):
        raise UsageError("EXPLAIN with options is refused", hint="EXPLAIN [ANALYZE] SELECT ... is possible")
    if len(words) <= skip:
        raise UsageError("EXPLAIN of nothing is refused", hint=_HINT)
    return ("EXPLAIN ANALYZE" if skip == 2 else "EXPLAIN"), sql[words[skip][1] :]
