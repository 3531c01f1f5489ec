"""Arrays and tables as recorded values: NumPy in its own format without pickle, frames as Arrow streams.

None of these libraries has to be installed: each is imported only for a value of its own.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any, Final

from ipyagent_sessions.errors import NotSerialisable

LIBRARIES: Final = ("numpy", "pandas", "polars", "pyarrow")


def pack(value: Any, library: str, path: str) -> dict[str, Any] | None:
    """The tagged form of a value of one of `LIBRARIES`, None for a kind that has none.  A Series has its name as it is
    under "name".

    Raises NotSerialisable, naming `path`, for Python objects inside of an array and for a column that Arrow does not know.
    """
    return _numpy(value, path) if library == "numpy" else _frame(value, library, path)


def _numpy(value: Any, path: str) -> dict[str, Any] | None:
    import numpy as np

    if isinstance(value, np.generic) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        return {"$": "npscalar", "type": value.dtype.str, "v": repr(value.item())}
    if type(value) is not np.ndarray:
        return None
    if value.dtype.hasobject:
        raise NotSerialisable(f"{path} is an array of Python objects", hint="convert it to a list, or to a typed array")
    out = io.BytesIO()
    np.save(out, value, allow_pickle=False)
    return {"$": "ndarray", "v": base64.b64encode(out.getvalue()).decode()}


def _frame(value: Any, library: str, path: str) -> dict[str, Any] | None:
    import pyarrow as pa

    name = type(value).__name__
    if name not in ("DataFrame", "Series", "Table"):
        return None
    if library == "pandas":
        frame = value.to_frame() if name == "Series" else value
        try:
            table = pa.Table.from_pandas(frame, preserve_index=True)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise NotSerialisable(
                f"{path} is a pandas {name} with a column that has no Arrow form: {error}",
                hint="convert that column to text or numbers",
            ) from error
    elif library == "polars":
        table = (value.to_frame() if name == "Series" else value).to_arrow()
    elif name == "Table":
        table = value
    else:
        return None
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    packed = {"$": f"{library}.{name}", "v": base64.b64encode(out.getvalue()).decode()}
    return packed if name != "Series" else {**packed, "name": value.name}


def scalar(dtype: str, text: str) -> Any:
    """A NumPy number from its type and its `repr`."""
    import numpy as np

    number: Any = text
    if text in ("True", "False"):
        number = text == "True"
    elif any(c in text for c in ".enf"):
        number = float(text)
    return np.dtype(dtype).type(number)


def _numpy_load(body: bytes) -> Any:
    import numpy as np

    return np.load(io.BytesIO(body), allow_pickle=False)


def _arrow_load(body: bytes) -> Any:
    import pyarrow as pa

    return pa.ipc.open_stream(io.BytesIO(body)).read_all()


def _pandas_series(body: bytes) -> Any:
    return _arrow_load(body).to_pandas().iloc[:, 0]


def _polars(body: bytes) -> Any:
    import polars as pl

    return pl.from_arrow(_arrow_load(body))


LOADS: Final[dict[str, Callable[[bytes], Any]]] = {
    "ndarray": _numpy_load,
    "pyarrow.Table": _arrow_load,
    "pandas.DataFrame": lambda body: _arrow_load(body).to_pandas(),
    "pandas.Series": _pandas_series,
    "polars.DataFrame": _polars,
    "polars.Series": lambda body: _polars(body).to_series(),
}
"""What makes the value from the bytes, by its tag."""
