"""What programs read: data as JSON, rows as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec


def as_json(data: Any) -> str:
    """`data` in one line.  A decimal is a number where that is exact, else a text; NaN and the infinities, which JSON has not,
    are texts."""
    return json.dumps(_finite(_builtins(data)), ensure_ascii=False, default=_number, allow_nan=False)


def as_csv(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    """Rows as in RFC 4180, with lines that end in LF, under a line of names.  Nothing is empty, lists and objects are JSON."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(_builtins(row[name])) for name in columns] for row in rows)
    return file.getvalue().removesuffix("\n")


def _builtins(data: Any) -> Any:
    return msgspec.to_builtins(data, builtin_types=(Decimal,), enc_hook=repr)


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else str(data)
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data


def _number(value: Decimal) -> float | str:
    near = float(value)
    return near if value.is_finite() and Decimal(repr(near)) == value else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, str | Decimal) else as_json(value)
