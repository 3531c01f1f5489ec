"""Columns of Arrow from buffers.

`pyarrow.array` would do, but its first call imports pandas where pandas is installed: 0.8 s that a query in a terminal, or a
kernel that has no use for pandas, should not pay.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

_CODES: Final = {"int16": "h", "int32": "i", "int64": "q", "uint32": "I", "double": "d"}
_OFFSETS: Final = {"string": "i", "large_string": "q"}


def column(values: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
    """`values`, some of them perhaps None, as a column of texts (given as such or in UTF-8), numbers or truth values."""
    import pyarrow as pa

    present = _bits([value is not None for value in values]) if None in values else None
    if (offset := _OFFSETS.get(str(kind))) is not None:
        parts = [value.encode() if isinstance(value, str) else value or b"" for value in values]
        offsets = array(offset, accumulate(map(len, parts), initial=0))
        buffers = [present, pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))]
    elif pa.types.is_boolean(kind):
        buffers = [present, _bits(values)]
    else:
        buffers = [present, pa.py_buffer(array(_CODES[str(kind)], [0 if value is None else value for value in values]))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def texts(values: Sequence[bytes | None]) -> pa.Array[Any]:
    """A column of texts, given in UTF-8; together they may have more than 2 GiB."""
    import pyarrow as pa

    return column(values, pa.large_string())


def integers(values: Sequence[int | None]) -> pa.Array[Any]:
    """A column of 64-bit integers."""
    import pyarrow as pa

    return column(values, pa.int64())


def table(**columns: pa.Array[Any]) -> pa.Table:
    """The columns as a table."""
    import pyarrow as pa

    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def _bits(values: Sequence[bool]) -> pa.Buffer:
    """A bitmap, the first value in the lowest bit."""
    import pyarrow as pa

    text = "".join(["1" if value else "0" for value in reversed(values)])
    return pa.py_buffer(int(text or "0", 2).to_bytes((len(values) + 7) // 8, "little"))
