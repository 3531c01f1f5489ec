"""Values come back as what they were: plain data, tagged kinds, and text of every sort."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
import pathlib
import re
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ipyagent_sessions import codec
from ipyagent_sessions.errors import NotSerialisable


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Pair(NamedTuple):
    left: Any
    right: Any = None


@dataclasses.dataclass
class Plain:
    a: Any
    b: Any = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    made: list[str] = dataclasses.field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        self.made.append("made")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    a: Any
    b: str | None = None


ANY_TEXT = st.text(st.characters(codec=None), max_size=6)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | ANY_TEXT
    | st.binary(max_size=6)
    | st.datetimes()
    | st.dates()
    | st.datetimes(timezones=st.just(dt.timezone(dt.timedelta(hours=5, minutes=30))))
    | st.times()
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
    | st.complex_numbers()
    | st.sampled_from([Colour.RED, Colour.BLUE, Level.LOW, Rights(3)])
    | st.just(pathlib.Path("a/é"))
)
KEYS = (
    st.booleans()
    | st.integers()
    | ANY_TEXT
    | st.just("$")
    | st.tuples(st.integers(), ANY_TEXT)
    | st.frozensets(st.integers(0, 3))
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(st.integers() | ANY_TEXT, max_size=3)
        | st.frozensets(ANY_TEXT, max_size=3)
        | st.builds(Plain, inner, inner)
        | st.builds(Frozen, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Record, a=inner)
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down; NaN equals NaN, and -0.0 is not 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, decimal.Decimal):
        return str(a) == str(b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a), list(b)) and all(map(same, a.values(), b.values()))
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, msgspec.Struct):
        return all(same(getattr(a, f), getattr(b, f)) for f in a.__struct_fields__)
    return bool(a == b)


def round_trip(value: Any) -> Any:
    body = codec.dumps(value)
    assert b"\n" not in body
    assert msgspec.json.decode(body) is not NotImplemented, "plain JSON for any other reader"
    assert codec.dumps(codec.loads(body)) == body
    return codec.loads(body)


@given(VALUES)
@example({"$": "pickle", "v": "gASVAgAAAAAAAACMAWEu"})
@example({"$": {"$": {"$": 1}}})
@example({1: "int", "1": "text", (1,): "tuple", (True, None): 2})
@example([2**63, -(2**63) - 1, 2**63 - 1, -(2**63), 10**40])
@example([float("nan"), float("inf"), -float("inf"), -0.0, 5e-324, 1.7e308, 1e16, 1.0])
@example({"\ud800": "\udfff", "a\0": "\0", "\u2028": "\u2029"})
@example({"\ud83e", "ok", "\0"})
@example(Plain("\ud800", {"\0": (1,)}))
@example(pathlib.Path("name-\udcff-of-bytes"))
@example(decimal.Decimal("sNaN123"))
@example(())
def test_any_value_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    assert same(round_trip(value), value)


def test_a_frozen_dataclass_comes_back_without_running_its_init_again() -> None:
    assert round_trip(Frozen(1)).made == ["made"]


@pytest.mark.parametrize("value", [re.RegexFlag.A | re.RegexFlag.I, Rights.READ | Rights.WRITE, Rights(0), Rights.READ])
def test_flags_come_back_also_combined(value: enum.Flag) -> None:
    assert round_trip(value) is value


def test_aware_times_keep_their_instant_and_offset() -> None:
    from zoneinfo import ZoneInfo

    value = dt.datetime(2026, 3, 29, 1, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    found = round_trip(value)
    assert (found, found.utcoffset()) == (value, value.utcoffset())


class Opaque:
    pass


UNFIT: dict[str, tuple[Callable[[], Any], str]] = {
    "an object": (Opaque, "value is of type .*Opaque"),
    "inside a list": (lambda: [1, [2, Opaque()]], r"value\[1\]\[1\] is of type .*Opaque"),
    "inside a dict": (lambda: {"a": {"b c": Opaque()}}, r"value\['a'\]\['b c'\] is of type"),
    "as a key": (lambda: {Opaque(): 1}, "value key is of type"),
    "under an int key": (lambda: {3: Opaque()}, r"value\[3\] is of type"),
    "inside a dataclass": (lambda: Plain(1, (Opaque(),)), r"value\.b\[0\] is of type"),
    "inside a struct": (lambda: Record(a={"x": Opaque()}), r"value\.a\['x'\] is of type"),
    "inside a named tuple": (lambda: Pair(1, Opaque()), r"value\[1\] is of type"),
    "a function": (lambda: len, "value is of type builtins.builtin_function"),
    "a generator": (lambda: (n for n in [1]), "value is of type builtins.generator"),
    "a class": (lambda: Plain, "value is of type builtins.type"),
    "a counter, which is more than a dict": (lambda: Counter("aab"), "value is of type collections.Counter"),
    "an ordered dict": (lambda: OrderedDict(a=1), "value is of type collections.OrderedDict"),
    "a memoryview": (lambda: memoryview(b"a"), "value is of type builtins.memoryview"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_has_no_durable_form_is_refused_with_its_place(name: str) -> None:
    make, message = UNFIT[name]
    with pytest.raises(NotSerialisable, match=f"^{message}"):
        codec.dumps(make())


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append({"a": loop})
    with pytest.raises(NotSerialisable, match="contains itself"):
        codec.dumps(loop)


def test_a_class_defined_inside_a_function_is_refused_when_it_is_stored_and_not_when_it_is_needed() -> None:
    @dataclasses.dataclass
    class Local:
        a: int

    with pytest.raises(NotSerialisable, match=r"value\[0\] is of type .*Local.* inside a function"):
        codec.dumps([Local(1)])


def test_a_class_that_is_gone_is_named() -> None:
    body = codec.dumps(Plain(1)).replace(b":Plain", b":Vanished")
    with pytest.raises(NotSerialisable, match="a recorded result is of type Vanished") as raised:
        codec.loads(body)
    assert "run the cell that defines it" in raised.value.hint


@pytest.mark.parametrize("name", ["os:system", "builtins:eval", "subprocess:Popen", "pathlib:Path", "builtins:dict"])
@pytest.mark.parametrize("tag", ["dataclass", "struct", "enum", "namedtuple", "pydantic", "flag"])
def test_only_data_classes_are_ever_made_from_a_name(name: str, tag: str) -> None:
    with pytest.raises(NotSerialisable, match=f"{name} is no longer a {tag}"):
        codec.loads(msgspec.json.encode({"$": tag, "type": name, "v": {}, "set": [], "extra": None, "private": None}))


def test_a_kind_of_a_newer_version_is_refused() -> None:
    with pytest.raises(NotSerialisable, match="unknown kind of value 'quaternion'"):
        codec.loads(b'{"$":"quaternion","v":1}')


def test_pickle_needs_opting_in_to_write_and_trust_to_read() -> None:
    pytest.importorskip("cloudpickle")
    value = {"a": {1, 2}, "o": uuid.UUID(int=1), "f": range(3)}
    with pytest.raises(NotSerialisable, match=r"value\['f'\] is of type builtins.range"):
        codec.dumps(value)
    body = codec.dumps(value, pickle=True)
    with pytest.raises(NotSerialisable, match="pickled"):
        codec.loads(body)
    assert codec.loads(body, trust_pickle=True) == value


def test_a_distrusted_pickle_is_not_even_looked_at(tmp_path: pathlib.Path) -> None:
    import base64

    class Bomb:
        def __reduce__(self) -> Any:
            return (open, (str(tmp_path / "boom"), "w"))

    import pickle

    body = msgspec.json.encode([{"$": "pickle", "v": base64.b64encode(pickle.dumps(Bomb())).decode()}])
    with pytest.raises(NotSerialisable):
        codec.loads(body)
    assert not (tmp_path / "boom").exists()


def nested(depth: int, kind: Any) -> Any:
    value: Any = "[{"
    for _ in range(depth):
        value = kind(value)
    return value


@pytest.mark.parametrize(
    ("kind", "levels"),
    [(lambda v: [v], 1), (lambda v: {"k\\": v, 'a"[': "]"}, 1), (lambda v: (v,), 2), (lambda v: ["]", v, "{"], 1)],
    ids=["list", "dict", "tuple", "beside"],
)
def test_the_bound_of_nesting_is_that_of_the_json(kind: Any, levels: int) -> None:
    value = nested(codec.DEEPEST // levels, kind)
    assert codec.loads(codec.dumps(value)) == value
    with pytest.raises(NotSerialisable, match="nested too deeply: 400 levels"):
        codec.dumps(kind(value))
