"""Writes the pages of docs/ that are made from code; `--check` writes nothing and fails when one is not up to date.

    python tools/generate_docs.py [--check]

docs/schema.md: the record of an event, the payload of each type, the columns of a segment, and the SQL views.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from ipyagent_sessions import events, payloads
from ipyagent_sessions.history.sql import describe
from ipyagent_sessions.history.views import LINEAGE, VIEWS
from ipyagent_sessions.log import arrow

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
HEAD: Final = """# Schema

Made from code by `python tools/generate_docs.py`; do not edit. How to ask: [sql.md](sql.md).
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the pages of docs/ that are made from code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a page is not up to date")
    check: bool = parser.parse_args(argv).check
    stale = [path for path, text in pages().items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(DOCS.parent)} {'is not up to date: run tools/generate_docs.py' if check else 'written'}")
        if not check:
            path.write_text(pages()[path], encoding="utf-8", newline="\n")
    return 1 if check and stale else 0


def pages() -> dict[Path, str]:
    """The generated pages by their paths."""
    return {DOCS / "schema.md": schema_page()}


def schema_page() -> str:
    """docs/schema.md."""
    return "\n".join([HEAD, *_views(), *_record(), *_payloads(), *_parquet()])


def _views() -> Iterator[str]:
    yield "## SQL views\n"
    columns = describe()
    for view in (*VIEWS, LINEAGE):
        yield f"### {view.name}\n\n{view.doc}\n"
        yield from _table(
            ("column", "type", ""), [(name, kind, view.columns.get(name, "")) for name, kind in columns[view.name]]
        )


def _record() -> Iterator[str]:
    yield f"## The record of an event\n\n{_doc(events.Event)}\n"
    yield from _table(("field", "type", "default"), _fields(events.Event))


def _payloads() -> Iterator[str]:
    yield f"## Payloads\n\n{_text(payloads.__doc__)} What is a default is left out of the JSON.\n"
    for name, kind in payloads.SCHEMAS.items():
        yield f"### {name}\n"
        if kind.__doc__ != payloads.Payload.__doc__ and _doc(kind):
            yield f"{_doc(kind)}\n"
        yield from _table(("field", "type", "default"), _fields(kind))
    free = sorted(events.TYPES - payloads.SCHEMAS.keys())
    yield f"### Others\n\n{', '.join(free)}, and types that a workflow emits: any JSON object.\n"


def _parquet() -> Iterator[str]:
    yield "## Columns of a sealed segment\n\n`<store>/s/<session>/events/<first>-<last>-<epoch>.parquet`, in zstd.\n"
    schema: list[Any] = list(arrow.schema())
    rows = [(str(field.name), str(field.type), "" if field.nullable else "never null") for field in schema]
    yield from _table(("column", "type", ""), rows)


def _fields(kind: type[Any]) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for field in msgspec.structs.fields(kind):
        annotation = kind.__annotations__[field.name]
        shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        if field.default is msgspec.NODEFAULT:
            default = "" if field.default_factory is msgspec.NODEFAULT else _json(field.default_factory())
        else:
            default = _json(field.default)
        rows.append((field.name, shown.replace("Raw", "JSON"), default or "required"))
    return rows


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _doc(kind: type[Any]) -> str:
    return _text(kind.__dict__.get("__doc__"))


def _text(doc: str | None) -> str:
    return re.sub(r"\s+", " ", doc or "").strip()


def _table(head: tuple[str, str, str], rows: list[tuple[str, str, str]]) -> Iterator[str]:
    def line(cells: tuple[str, str, str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    def coded(text: str) -> str:
        return f"`{text}`" if text else ""

    yield line(head)
    yield "|---|---|---|"
    plain_last = head[2] == ""
    for name, kind, last in rows:
        yield line((coded(name), coded(kind), last if plain_last or last == "required" else coded(last)))
    yield ""


if __name__ == "__main__":
    sys.exit(main())
