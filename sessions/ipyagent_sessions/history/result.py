"""What a query gave: a table that is complete in memory, for people and for programs."""

from __future__ import annotations

import html
import importlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.textsafe import display_width, plain

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

ROWS: Final = 50
WIDTH: Final = 40
"""How many rows, and columns of a terminal in a cell, a table shows unless asked for more."""

_PLAN: Final = ["explain_key", "explain_value"]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Result:
    """The rows of a query.  `problems` names what of the store could not be read and is missing from them."""

    def __init__(self, table: pa.Table, problems: Sequence[str] = ()) -> None:
        self.problems = list(problems)
        self._table = _tidy(table)

    def __len__(self) -> int:
        return self._table.num_rows

    def __repr__(self) -> str:
        return str(self)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, no two alike."""
        return list(self._table.column_names)

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self._table

    def df(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame.  Raises UsageError when pandas is not installed."""
        _library("pandas")
        table: Any = self._table
        return table.to_pandas()  # type: ignore[no-any-return]  # its stubs know half of the type

    def pl(self) -> polars.DataFrame:
        """The rows as a polars DataFrame.  Raises UsageError when polars is not installed."""
        return _library("polars").from_arrow(self._table)  # type: ignore[no-any-return]  # a table gives a DataFrame

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts of Python values."""
        columns = [_values(column) for column in self._table.columns]
        return [dict(zip(self.columns, cells, strict=True)) for cells in zip(*columns, strict=True)]

    def text(self, rows: int = ROWS, width: int = WIDTH) -> str:
        """The first `rows` as an aligned table of plain text; cells are cut to `width`.  A plan is shown as it is."""
        if self.columns == _PLAN:
            plan = [plain(line) for row in self.rows() for line in row["explain_value"].splitlines()]
            return "\n".join([*plan, *self._notes(rows)])
        cells = [[plain(name, width) for name in self.columns], *self._cells(rows, width)]
        sizes = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
        right = self._numeric()
        lines = ["  ".join(_padded(*item) for item in zip(line, sizes, right, strict=True)).rstrip() for line in cells]
        lines.insert(1, "  ".join("─" * size for size in sizes))
        return "\n".join([*lines, *self._notes(rows)])

    __str__ = text

    def _repr_html_(self) -> str:
        return self.html()

    def html(self, rows: int = ROWS, width: int = WIDTH) -> str:
        """The first `rows` as an HTML table without scripts; all text is escaped, cells are cut to `width`."""
        styles = [' style="text-align:right"' if right else ' style="text-align:left"' for right in self._numeric()]

        def line(tag: str, cells: Sequence[str]) -> str:
            inner = (f"<{tag}{style}>{html.escape(cell)}</{tag}>" for cell, style in zip(cells, styles, strict=True))
            return f"<tr>{''.join(inner)}</tr>"

        head = line("th", [plain(name, width) for name in self.columns])
        body = "".join(line("td", cells) for cells in self._cells(rows, width))
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes(rows))
        return f'<div class="ipyagent-sql"><table><thead>{head}</thead><tbody>{body}</tbody></table>{notes}</div>'

    def _cells(self, rows: int, width: int) -> list[list[str]]:
        columns = [[plain(_shown(value), width) for value in _values(column)] for column in self._table.slice(0, rows).columns]
        return [list(cells) for cells in zip(*columns, strict=True)]

    def _numeric(self) -> list[bool]:
        import pyarrow.types as kinds

        types: list[Any] = self._table.schema.types
        return [kinds.is_integer(t) or kinds.is_floating(t) or kinds.is_decimal(t) for t in types]

    def _notes(self, rows: int) -> list[str]:
        count = len(self)
        more = f" ({count - rows} more: use .df(), .pl(), .arrow() or .rows(), or LIMIT)" if count > rows else ""
        note = f"{count} row{'' if count == 1 else 's'}{more}"
        return [note, *(f"Not complete: {plain(problem)}" for problem in self.problems)]


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"{name} is not installed", hint="install it, or use .arrow() or .rows()") from None


def _padded(cell: str, size: int, right: bool) -> str:
    space = " " * (size - display_width(cell))
    return space + cell if right else cell + space


def _values(column: pa.ChunkedArray[Any]) -> list[Any]:
    """The column as Python values.  Arrow imports pandas for times with a zone, which takes 0.7 s; so they are made here."""
    import pyarrow as pa

    if column.type != pa.timestamp("us", tz="UTC"):
        try:
            return column.to_pylist()
        except OverflowError:
            return _beyond(column)
    ticks = [tick for chunk in column.chunks for tick in chunk.view(pa.int64()).to_pylist()]
    return [None if tick is None else _moment(tick) for tick in ticks]


def _beyond(column: pa.ChunkedArray[Any]) -> list[Any]:
    """A column of dates or times, as text those that Python has none for.  Raises UsageError for another column."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if not kinds.is_temporal(column.type):
        raise UsageError("the result holds a time that Python has none for", hint="cast it to varchar")
    values: list[Any] = []
    for value, text in zip(column, map(str, column.cast(pa.string()).to_pylist()), strict=True):
        try:
            values.append(value.as_py())
        except OverflowError:
            values.append(text if text[0] != "<" else "-infinity" if "-" in text else "infinity")
    return values


def _moment(tick: int) -> datetime | str:
    """So many microseconds after 1970, or which end of time that is."""
    try:
        return _EPOCH + timedelta(microseconds=tick)
    except OverflowError:
        return "infinity" if tick > 0 else "-infinity"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(round(value, 6)) if abs(value) >= 0.001 else f"{value:.6g}"
    if isinstance(value, datetime):
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return moment.isoformat(" ", "milliseconds" if moment.microsecond else "seconds")
    if isinstance(value, list | dict):
        return msgspec.json.encode(value, enc_hook=str).decode()
    return str(value)


def _tidy(table: pa.Table) -> pa.Table:
    """Columns of the same name told apart, and sums of integers, which DuckDB counts in 128 bits, as 64-bit integers."""
    import pyarrow as pa
    import pyarrow.types as kinds

    names: list[str] = []
    for name in table.column_names:
        base, n = name, 0
        while name in names:
            n += 1
            name = f"{base}_{n}"
        names.append(name)
    table = table.rename_columns(names)
    types: list[Any] = table.schema.types
    for i, kind in enumerate(types):
        if kinds.is_decimal(kind) and kind.scale == 0:
            try:
                table = table.set_column(i, names[i], table.column(i).cast(pa.int64()))
            except pa.ArrowInvalid:  # larger than 64 bits: stays as it is
                continue
    return table


__all__ = ["ROWS", "WIDTH", "Result"]
