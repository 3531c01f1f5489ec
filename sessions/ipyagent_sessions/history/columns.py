"""Texts and integers as Arrow columns, from buffers.

`pyarrow.array` would do, but its first call imports pandas where pandas is installed: 0.8 s that a query in a terminal, or a
kernel that has no use for pandas, should not pay.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def texts(values: Sequence[bytes | None]) -> pa.Array[Any]:
    """A column of texts, given in UTF-8."""
    import pyarrow as pa

    parts = [v or b"" for v in values]
    offsets = array("q", accumulate(map(len, parts), initial=0))
    buffers = [_present(values), pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.large_string(), len(parts), buffers)


def integers(values: Sequence[int | None]) -> pa.Array[Any]:
    """A column of 64-bit integers."""
    import pyarrow as pa

    numbers = pa.py_buffer(array("q", [v or 0 for v in values]))
    return pa.Array.from_buffers(pa.int64(), len(values), [_present(values), numbers])


def table(**columns: pa.Array[Any]) -> pa.Table:
    """The columns as a table."""
    import pyarrow as pa

    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def _present(values: Sequence[object]) -> pa.Buffer | None:
    """The validity bitmap, first value in the lowest bit; None when no value is None."""
    if None not in values:
        return None
    import pyarrow as pa

    bits = "".join(["0" if v is None else "1" for v in values])
    return pa.py_buffer(int(bits[::-1], 2).to_bytes((len(bits) + 7) // 8, "little"))
