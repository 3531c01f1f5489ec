"""JSON that anybody may have changed since it was written: a file's, a blob's, an event's payload.

msgspec raises `RecursionError` for what is nested deeper than the stack has room for.  Here that is damage like any other: who
reads a file catches one kind of error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

_Kind = TypeVar("_Kind")
_TOO_DEEP = "JSON is nested too deep"


@overload
def from_json(body: bytes | str | msgspec.Raw) -> Any: ...
@overload
def from_json(body: bytes | str | msgspec.Raw, kind: type[_Kind]) -> _Kind: ...
def from_json(body: bytes | str | msgspec.Raw, kind: Any = Any) -> Any:
    """The value of a JSON text.  Raises msgspec.DecodeError, also for one that is nested too deep."""
    try:
        return msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise msgspec.DecodeError(_TOO_DEEP) from None


def reading(kind: type[_Kind]) -> Callable[[bytes | str | msgspec.Raw], _Kind]:
    """`from_json` for one kind, made ahead: for who reads many."""
    decode = msgspec.json.Decoder(kind).decode

    def read(body: bytes | str | msgspec.Raw) -> _Kind:
        try:
            return decode(body)
        except RecursionError:
            raise msgspec.DecodeError(_TOO_DEEP) from None

    return read
