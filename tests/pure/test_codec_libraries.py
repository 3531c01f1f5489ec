"""Values of NumPy, Arrow, pandas, polars and pydantic travel natively, without pickle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pydantic
import pytest

from ipyagent_sessions import codec
from ipyagent_sessions.errors import NotSerialisable

Make = Callable[[], Any]


def round_trip(value: Any) -> Any:
    body = codec.dumps(value)
    assert b'"pickle"' not in body
    found = codec.loads(body)
    assert type(found) is type(value)
    return found


ARRAYS: dict[str, Make] = {
    "floats with nan": lambda: np.array([1.5, np.nan, -np.inf, -0.0]),
    "fortran order": lambda: np.asfortranarray(np.arange(6).reshape(2, 3)),
    "strided": lambda: np.arange(20)[::3],
    "zero dimensions": lambda: np.array(5, dtype="u1"),
    "nothing in it": lambda: np.zeros((0, 3), dtype="c16"),
    "big-endian": lambda: np.array([1, 2], dtype=">i4"),
    "text": lambda: np.array(["é", "\u2028"]),
    "times": lambda: np.array(["2026-01-01", "NaT"], dtype="M8[ms]"),
    "records": lambda: np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    "bool": lambda: np.array([True, False]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back_with_dtype_shape_and_order(name: str) -> None:
    value = ARRAYS[name]()
    found = round_trip({"a": [value]})["a"][0]
    np.testing.assert_array_equal(found, value)
    assert (found.dtype, found.shape, found.flags.f_contiguous) == (
        value.dtype,
        value.shape,
        value.flags.f_contiguous or False,
    ) or name == "strided"


@pytest.mark.parametrize(
    "value",
    [
        np.int8(-5),
        np.uint64(2**64 - 1),
        np.float32(0.1),
        np.float16(2.5),
        np.float64("nan"),
        np.float64("-inf"),
        np.bool_(True),
        np.bool_(False),
        np.int64(0),
    ],
    ids=repr,
)
def test_scalars_come_back_with_their_type(value: Any) -> None:
    found = round_trip(value)
    assert found == value or (np.isnan(found) and np.isnan(value))


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.array([object()]),
        lambda: np.ma.masked_array([1, 2], [True, False]),
        lambda: np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        lambda: np.longdouble(1),
    ],
    ids=["objects", "masked", "recarray", "longdouble"],
)
def test_arrays_that_would_lose_something_are_refused(make: Make) -> None:
    with pytest.raises(NotSerialisable, match=r"value\['x'\]"):
        codec.dumps({"x": make()})


FRAMES: dict[str, Make] = {
    "plain": lambda: pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": [1.5, float("nan")]}),
    "index": lambda: pd.DataFrame({"a": [1, 2]}, index=pd.Index(["r", "s"], name="row")),
    "two indexes": lambda: pd.DataFrame(
        {"a": [1, 2]}, index=pd.MultiIndex.from_tuples([(1, "x"), (2, "y")], names=["n", "t"])
    ),
    "int columns": lambda: pd.DataFrame([[1, 2], [3, 4]]),
    "times and zones": lambda: pd.DataFrame({"t": pd.DatetimeIndex(["2026-01-01", "NaT"], tz="Europe/Berlin")}),
    "categories": lambda: pd.DataFrame({"c": pd.Categorical(["a", "b", "a"], categories=["b", "a"], ordered=True)}),
    "nothing in it": lambda: pd.DataFrame({"a": pd.Series([], dtype="int64")}),
}


@pytest.mark.parametrize("name", FRAMES)
def test_pandas_frames_come_back_with_index_and_types(name: str) -> None:
    value = FRAMES[name]()
    pd.testing.assert_frame_equal(round_trip(value), value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pd.Series([1, 2], name="n", index=["a", "b"]),
        lambda: pd.Series([1.5, 2.5]),
        lambda: pd.Series(["x"], name=0),
        lambda: pd.Series([], dtype="float64"),
    ],
    ids=["named", "unnamed", "named zero", "empty"],
)
def test_pandas_series_come_back_with_name_and_index(make: Make) -> None:
    value = make()
    pd.testing.assert_series_equal(round_trip(value), value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pd.DataFrame({"o": [object()]}),
        lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]),
        lambda: pd.DataFrame({"m": [1, "x"]}),
    ],
    ids=["objects", "two of one name", "mixed"],
)
def test_frames_without_an_arrow_form_are_refused_with_their_place(make: Make) -> None:
    with pytest.raises(NotSerialisable, match=r"value\[0\] is a pandas DataFrame"):
        codec.dumps([make()])


@pytest.mark.parametrize(
    "make",
    [
        lambda: pl.DataFrame({"a": [1, None], "b": ["x", "é"], "l": [[1], []], "s": [{"k": 1}, None]}),
        lambda: pl.DataFrame({"c": ["a", "b"]}, schema={"c": pl.Categorical}),
        lambda: pl.DataFrame(),
        lambda: pl.DataFrame({"t": [None]}, schema={"t": pl.Datetime("us", "UTC")}),
    ],
    ids=["plain", "categories", "empty", "times"],
)
def test_polars_frames_come_back(make: Make) -> None:
    value = make()
    found = round_trip(value)
    assert found.equals(value)
    assert found.schema == value.schema


@pytest.mark.parametrize("make", [lambda: pl.Series("n", [1, None]), lambda: pl.Series("", ["x"])], ids=["named", "unnamed"])
def test_polars_series_come_back(make: Make) -> None:
    value = make()
    assert round_trip(value).equals(value, check_names=True)


def test_arrow_tables_come_back_with_their_schema() -> None:
    value = pa.table({"a": pa.array([1, None], pa.int8()), "d": pa.array(["x", "x"]).dictionary_encode()})
    value = value.replace_schema_metadata({"who": "me"})
    found = round_trip(value)
    assert found.equals(value, check_metadata=True)


class Inner(pydantic.BaseModel):
    n: int


class Special(Inner):
    extra: str = "more"


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str = pydantic.Field(alias="Name")
    secret: pydantic.SecretStr = pydantic.SecretStr("s3cret")
    hidden: bytes = pydantic.Field(default=b"\xff\0", exclude=True)
    inner: Inner
    maybe: tuple[int, ...] | None = None
    _private: int = pydantic.PrivateAttr(default=0)
    checked: int = 0

    @pydantic.field_validator("checked")
    @classmethod
    def count(cls, value: int) -> int:
        return value + 1


def test_pydantic_models_come_back_as_they_were_and_are_not_validated_again() -> None:
    value: Any = Model.model_validate(
        {"Name": "é\u2028", "inner": Special(n=1), "maybe": (1, 2), "checked": 5, "more": {"a": (1,)}}
    )
    value._private = 7
    with pytest.raises(NotSerialisable, match=r"value\.secret is of type pydantic"):
        codec.dumps(value)
    value.secret = None
    found = round_trip(value)
    assert found == value
    assert (found.checked, found._private, found.hidden, type(found.inner)) == (6, 7, b"\xff\0", Special)
    assert found.model_fields_set == value.model_fields_set
    assert found.more == {"a": (1,)}


class Root(pydantic.RootModel[list[int]]):
    pass


def test_a_root_model_comes_back() -> None:
    assert round_trip(Root([1, 2])) == Root([1, 2])
