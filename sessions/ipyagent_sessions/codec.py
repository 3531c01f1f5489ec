"""Values as JSON, and back as what they were.

Plain JSON data is written as it is.  Everything else is an object with the key `$` that names its kind, so that a recorded
result has on resume the type it had when the workflow first saw it: tuples, sets, bytes, dates, dataclasses, enums, pydantic
models, NumPy arrays, Arrow tables, pandas and polars frames travel natively.  Pickle is used only where the caller asks for
it, and a session that was imported from elsewhere is never unpickled.

Text that JSON readers cannot stand (lone surrogates, NUL) is kept exactly, in base64.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import hashlib
import importlib
import math
import pathlib
import re
import sys
import uuid
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ipyagent_sessions import arrays
from ipyagent_sessions.errors import NotSerialisable
from ipyagent_sessions.events import clean

DEEPEST: Final = 400
"""So many levels of lists and objects a value has at most as JSON.  Python gives a stack of 1,000, some reading takes two a
level, and a value must also be read where the stack is deeper than it was when it was written."""
_INT64: Final = 2**63
_ALWAYS_PLAIN: Final = frozenset({str, bool, type(None)})
_TEXT: Final = frozenset({str})
_DICT: Final = b'"$":"dict"'
_SHIELDED: Final = b'"$":"text"'
_encode: Final = msgspec.json.Encoder().encode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.Decoder().decode
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STRINGS: Final = re.compile(rb'"[^"]*"')
# bytes.find is used for "in" below, which takes twice the time: each argument and each result passes here


def dumps(value: Any, *, pickle: bool = False) -> bytes:
    """`value` as tagged JSON.

    Raises NotSerialisable, naming the place inside the value and its type, when a part has no native form and `pickle` is
    false.
    """
    return _robust(value, "value", pickle, _encode)


def canonical(value: Any) -> bytes:
    """Like `dumps` with the keys of objects and dicts sorted: the bytes that an argument digest is made of."""
    body = _robust(value, "arguments", False, _encode_sorted)
    return body if body.find(_DICT) < 0 else _encode_sorted(_in_order(_decode(body)))


def digest(body: bytes) -> str:
    """16 hex digits that identify `body` (BLAKE2b, 64 bits)."""
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def loads(body: bytes | msgspec.Raw, *, trust_pickle: bool = False) -> Any:
    """The value of `dumps`.  Raises NotSerialisable for a pickled part unless `trust_pickle`, and for an unknown kind."""
    packed = bytes(memoryview(body))
    if packed.find(b'"$"') < 0:  # plain JSON, as most results are
        return _decode(packed)
    return _unpack(_decode(packed), trust_pickle)


def readable(body: bytes | msgspec.Raw) -> str:
    """What `dumps` wrote as JSON text for people, empty for None: a text that UTF-8 has no form for is shown cleaned."""
    packed = bytes(memoryview(body))
    if packed.find(_SHIELDED) >= 0:
        packed = _encode(_unshield(_decode(packed)))
    return "" if packed == b"null" else packed.decode("utf-8", "replace")


def _unshield(packed: Any) -> Any:
    if isinstance(packed, list):
        return [_unshield(v) for v in packed]
    if not isinstance(packed, dict):
        return packed
    if packed.get("$") == "text":
        with contextlib.suppress(ValueError, TypeError):  # forged: shown as it is
            return clean(base64.b64decode(packed["v"]).decode("utf-8", "surrogatepass"))[0]
    return {k: _unshield(v) for k, v in packed.items()}


def _robust(value: Any, path: str, pickle: bool, encode: Callable[[Any], bytes]) -> bytes:
    try:
        packed = value if _is_plain(value) else _pack(value, path, pickle)
        try:
            body = encode(packed)
        except UnicodeEncodeError:
            body = encode(_shield(packed))
        if body.find(b"\\u0000") >= 0:
            body = encode(_shield(packed))
        if deeper(body, DEEPEST):
            raise RecursionError
    except RecursionError:
        raise NotSerialisable(
            f"{path} contains itself, or is nested too deeply: {DEEPEST} levels can be read again everywhere",
            hint="return a flatter value",
        ) from None
    return body


def deeper(body: bytes, levels: int) -> bool:
    """Whether JSON is nested deeper than so many levels.  Looks at its brackets, and needs no stack."""
    if len(body) <= 2 * levels or body.count(b"[") + body.count(b"{") <= levels:
        return False
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_ONE_KIND, _NO_BRACKETS)
    bare = _STRINGS.sub(b"", bare.replace(b'""', b""))  # most strings, and what joins two of them
    for _ in range(levels):
        bare = bare.replace(b"[]", b"")  # takes the innermost level away
    return bool(bare)


def _in_order(packed: Any) -> Any:
    """Packed data with the pairs of tagged dicts sorted, as objects already are."""
    if isinstance(packed, list):
        return [_in_order(v) for v in packed]
    if not isinstance(packed, dict):
        return packed
    out = {k: _in_order(v) for k, v in packed.items()}
    if out.get("$") == "dict":
        out["v"].sort(key=_encode_sorted)
    return out


def _shield(packed: Any) -> Any:
    """Texts with lone surrogates or NUL as base64; also as keys of objects."""
    if isinstance(packed, str):
        if "\0" in packed or not _is_utf8(packed):
            return {"$": "text", "v": base64.b64encode(packed.encode("utf-8", "surrogatepass")).decode()}
        return packed
    if isinstance(packed, list):
        return [_shield(v) for v in packed]
    if isinstance(packed, dict):
        if all(_is_utf8(k) and "\0" not in k for k in packed):
            return {k: _shield(v) for k, v in packed.items()}
        return {"$": "dict", "v": [[_shield(k), _shield(v)] for k, v in packed.items()]}
    return packed


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_plain(value: Any) -> bool:
    """Whether `value` is JSON as it stands, as most arguments and results are."""
    kind = type(value)
    if kind is list:
        parts = value
    elif kind is dict:
        if "$" in value or not _TEXT.issuperset(map(type, value)):
            return False
        parts = value.values()
    elif kind is int:
        return bool(-_INT64 <= value < _INT64)
    else:
        return kind in _ALWAYS_PLAIN or (kind is float and math.isfinite(value))
    for part in parts:
        kind = type(part)
        if kind not in _ALWAYS_PLAIN and not (kind is int and -_INT64 <= part < _INT64) and not _is_plain(part):
            return False
    return True


def _pack(value: Any, path: str, pickle: bool) -> Any:
    if _is_plain(value):
        return value
    kind = type(value)
    if kind is int:
        return {"$": "int", "v": _digits(value, path)}
    if kind is float:
        return {"$": "float", "v": repr(value)}
    if kind is list:
        return [_pack(v, f"{path}[{i}]", pickle) for i, v in enumerate(value)]
    if kind is dict:
        if "$" not in value and all(type(k) is str for k in value):
            return {k: _pack(v, f"{path}[{k!r}]", pickle) for k, v in value.items()}
        return {
            "$": "dict",
            "v": [[_pack(k, f"{path} key", pickle), _pack(v, f"{path}[{k!r}]", pickle)] for k, v in value.items()],
        }
    packed = _pack_tagged(value, path, pickle)
    if packed is not None:
        return packed
    if pickle:
        import cloudpickle

        return {"$": "pickle", "v": base64.b64encode(cloudpickle.dumps(value)).decode()}
    raise NotSerialisable(
        f"{path} is of type {kind.__module__}.{kind.__qualname__}, which has no durable form",
        hint="return JSON-like data, a dataclass, a pydantic model, an array or a frame; or opt in with pickle=True",
    )


def _digits(value: int, path: str) -> str:
    """Raises NotSerialisable for an integer of more digits than Python reads again."""
    try:
        return str(value)
    except ValueError as error:
        raise NotSerialisable(f"{path} cannot be written: {error}", hint="return it as hex(value), a text") from error


def _pack_tagged(value: Any, path: str, pickle: bool) -> dict[str, Any] | None:
    if isinstance(value, enum.Flag):
        return {"$": "flag", "type": _name(type(value), path), "v": int(value.value)}
    if isinstance(value, enum.Enum):
        return {"$": "enum", "type": _name(type(value), path), "v": value.name}
    if type(value) in (tuple, set, frozenset):
        items = [_pack(v, f"{path}[{i}]", pickle) for i, v in enumerate(value)]
        if type(value) is not tuple:
            items = sorted(map(_shield, items), key=_encode_sorted)
        return {"$": type(value).__name__, "v": items}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {
            "$": "namedtuple",
            "type": _name(type(value), path),
            "v": [_pack(v, f"{path}[{i}]", pickle) for i, v in enumerate(value)],
        }
    if isinstance(value, bytes | bytearray):
        return {"$": type(value).__name__, "v": base64.b64encode(value).decode()}
    for tag, (cls, to_text, _) in _TEXTUAL.items():
        if type(value) is cls:
            return {"$": tag, "v": to_text(value)}
    if isinstance(value, pathlib.PurePath):
        return {"$": "path", "v": str(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _pack(getattr(value, f.name), f"{path}.{f.name}", pickle) for f in dataclasses.fields(value)}
        return {"$": "dataclass", "type": _name(type(value), path), "v": fields}
    if isinstance(value, msgspec.Struct):
        fields = {f: _pack(getattr(value, f), f"{path}.{f}", pickle) for f in value.__struct_fields__}
        return {"$": "struct", "type": _name(type(value), path), "v": fields}
    return _pack_foreign(value, path, pickle)


def _pack_foreign(value: Any, path: str, pickle: bool) -> dict[str, Any] | None:
    """Kinds of libraries that may not be installed: looked at only when the value's own module says so."""
    kind = type(value)
    root = kind.__module__.partition(".")[0]
    if "pydantic" in sys.modules:
        import pydantic

        if isinstance(value, pydantic.BaseModel):
            held = value.__getstate__()
            fields = {k: _pack(v, f"{path}.{k}", pickle) for k, v in held["__dict__"].items() if k in type(value).model_fields}
            return {
                "$": "pydantic",
                "type": _name(kind, path),
                "v": fields,
                "set": sorted(held["__pydantic_fields_set__"]),
                "extra": _pack(held.get("__pydantic_extra__"), path, pickle),
                "private": _pack(held.get("__pydantic_private__"), path, pickle),
            }
    if root in arrays.LIBRARIES:
        packed = arrays.pack(value, root, path)
        if packed is not None and "name" in packed:
            packed["name"] = _pack(packed["name"], f"{path}.name", False)
        return packed
    return None


def _name(cls: type, path: str) -> str:
    if "<locals>" in cls.__qualname__:
        raise NotSerialisable(
            f"{path} is of type {cls.__qualname__}, and a class defined inside a function cannot be found again",
            hint="define the class at the top of the module or in a cell of its own",
        )
    return f"{cls.__module__}:{cls.__qualname__}"


_TEXTUAL: Final[dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]]] = {
    "datetime": (dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    "date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "time": (dt.time, dt.time.isoformat, dt.time.fromisoformat),
    "timedelta": (
        dt.timedelta,
        lambda v: f"{v.days} {v.seconds} {v.microseconds}",
        lambda v: dt.timedelta(*map(int, v.split())),
    ),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "uuid": (uuid.UUID, str, uuid.UUID),
    "complex": (complex, repr, complex),
    "int": (int, str, int),
    "float": (float, repr, float),
}


def _unpack(packed: Any, trust_pickle: bool) -> Any:
    if isinstance(packed, list):
        return [_unpack(v, trust_pickle) for v in packed]
    if not isinstance(packed, dict):
        return packed
    tag = packed.get("$")
    if tag is None:
        return {k: _unpack(v, trust_pickle) for k, v in packed.items()}
    value = packed["v"]
    if tag == "dict":
        return {_unpack(k, trust_pickle): _unpack(v, trust_pickle) for k, v in value}
    if tag in _COLLECTIONS:
        return _COLLECTIONS[tag](_unpack(v, trust_pickle) for v in value)
    if tag in _TEXTUAL:
        return _TEXTUAL[tag][2](value)
    if tag in _BINARY:
        loaded = _BINARY[tag](base64.b64decode(value))
        return loaded.rename(_unpack(packed["name"], trust_pickle)) if "name" in packed else loaded
    if tag == "path":
        return pathlib.Path(_unpack(value, trust_pickle))
    if tag == "pydantic":
        return _build_pydantic(_resolve(packed["type"], tag), {k: _unpack(packed[k], trust_pickle) for k in _PYDANTIC})
    if tag in _TYPED:
        return _TYPED[tag](_resolve(packed["type"], tag), _unpack(value, trust_pickle))
    if tag == "npscalar":
        return arrays.scalar(packed["type"], value)
    if tag == "pickle":
        if not trust_pickle:
            raise NotSerialisable("this value was pickled", hint="it is loaded only in the store that wrote it")
        import pickle

        return pickle.loads(base64.b64decode(value))
    raise NotSerialisable(f"unknown kind of value {tag!r}", hint="it was written by a newer version of ipyagent")


def _resolve(name: str, tag: str) -> type:
    """The class of a recorded dataclass, Struct, enum or pydantic model.  Only such classes are ever returned."""
    module_name, _, qualname = name.partition(":")
    try:
        found: Any = sys.modules.get(module_name) or importlib.import_module(module_name)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise NotSerialisable(
            f"a recorded result is of type {qualname}, and {module_name} has none now",
            hint="run the cell that defines it, then resume",
        ) from error
    fits = isinstance(found, type) and (
        dataclasses.is_dataclass(found)
        or issubclass(found, enum.Enum | msgspec.Struct | tuple)
        or hasattr(found, "model_validate")
    )
    if not fits:
        raise NotSerialisable(f"{name} is no longer a {tag}")
    return found  # type: ignore[no-any-return]  # checked above


def _build_dataclass(cls: type, fields: dict[str, Any]) -> Any:
    """The instance with exactly the recorded fields; `__init__` and its effects are not run a second time."""
    out: object = object.__new__(cls)
    for key, value in fields.items():
        object.__setattr__(out, key, value)
    return out


def _build_pydantic(cls: Any, held: dict[str, Any]) -> Any:
    """The instance as it was; its validators had their say when it was first made."""
    out = cls.__new__(cls)
    out.__setstate__(
        {
            "__dict__": held["v"],
            "__pydantic_fields_set__": set(held["set"]),
            "__pydantic_extra__": held["extra"],
            "__pydantic_private__": held["private"],
        }
    )
    return out


_PYDANTIC: Final = ("v", "set", "extra", "private")
_COLLECTIONS: Final[dict[str, Callable[..., Any]]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_BINARY: Final[dict[str, Callable[[bytes], Any]]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "text": lambda body: body.decode("utf-8", "surrogatepass"),
    **arrays.LOADS,
}
_TYPED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "enum": lambda cls, v: cls[v],
    "flag": lambda cls, v: cls(v),
    "namedtuple": lambda cls, v: cls(*v),
    "dataclass": _build_dataclass,
    "struct": lambda cls, v: cls(**v),
}
