"""Structs as TypeScript, so that the page's types and the written contract are those of the code.

python -m ipyagent_lab.typescript docs/server-api.md      # renews the block between the two markers
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, UnsetType

from ipyagent_lab import shapes

BEGIN: Final = "<!-- made by python -m ipyagent_lab.typescript docs/server-api.md -->"
END: Final = "<!-- end -->"
_SIMPLE: Final[dict[Any, str]] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    Any: "unknown",
    Raw: "unknown",
    UnsetType: "undefined",
}


def text_of(roots: tuple[type[Any], ...] = shapes.SPOKEN) -> str:
    """The interfaces of `roots` and of everything they hold, in order of mention."""
    found: dict[str, type[Struct]] = {}
    for root in roots:
        _collect(root, found)
    return "\n\n".join(_interface(kind) for kind in found.values())


def renewed(page: str) -> str:
    """`page` with the block between the markers made anew."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n```ts\n{text_of()}\n```\n{END}{tail}"


def _collect(kind: Any, found: dict[str, type[Struct]]) -> None:
    if isinstance(kind, type) and issubclass(kind, Struct):
        if kind.__name__ not in found:
            found[kind.__name__] = kind
            for field in msgspec.structs.fields(kind):
                _collect(field.type, found)
    else:
        for part in get_args(kind):
            _collect(part, found)


def _interface(kind: type[Struct]) -> str:
    comment = inspect.cleandoc(kind.__doc__ or "").splitlines()
    lines = [f"/** {comment[0]}", *(f" *  {line}".rstrip() for line in comment[1:])]
    lines[-1] += " */"
    tag = kind.__struct_config__.tag
    fields = [f"  {kind.__struct_config__.tag_field}: {tag!r};".replace("'", '"')] if tag else []
    optional = kind.__struct_config__.omit_defaults or kind.__struct_config__.forbid_unknown_fields
    for field in msgspec.structs.fields(kind):
        mark = "?" if optional and not field.required else ""
        fields.append(f"  {field.encode_name}{mark}: {_type(field.type)};")
    return "\n".join([*lines, f"export interface {kind.__name__} {{", *fields, "}"])


def _type(kind: Any) -> str:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_type(a) for a in args if a is not UnsetType)
    if origin is typing.Literal:
        return " | ".join(f'"{a}"' for a in args)
    if origin is list:
        inner = _type(args[0])
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if origin is dict:
        return f"Record<string, {_type(args[1])}>"
    return str(kind.__name__)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(renewed(target.read_text("utf-8")), "utf-8", newline="\n")
