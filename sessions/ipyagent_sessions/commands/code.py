"""Somebody's code: modules that are imported, cells of a notebook's file, and in one line what went wrong there."""

from __future__ import annotations

import importlib
import linecache
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any, Final

import msgspec

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.run.frames import text_of
from ipyagent_sessions.textsafe import plain

SETUP_TAG: Final = "agent-setup"
_INSTALLED: Final = ("<frozen ", *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")))
"""How the files begin that are nobody's here."""
_MODULE: Final = "module:name, from this folder or an installed package"


class _Cell(msgspec.Struct):
    cell_type: str = ""
    metadata: dict[str, Any] = {}
    source: str | list[str] = ""

    @property
    def text(self) -> str:
        return self.source if isinstance(self.source, str) else "".join(self.source)


class _Notebook(msgspec.Struct):
    cells: list[_Cell]


def imported(target: str) -> Any:
    """What `module:name` names.  Raises UsageError saying what went wrong in whose file."""
    module, _, name = target.partition(":")
    if module.startswith(".") or not module or not name:
        raise UsageError(f"{target!r} names no workflow", hint=_MODULE)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # somebody's module is run: it may raise anything
        where = _place(error)
        if not where and isinstance(error, ImportError | AttributeError):
            raise UsageError(f"{target} cannot be imported: {error}", hint=_MODULE) from error
        raise UsageError(f"{target} cannot be imported: {where}{_told(error)}", hint="mend it there") from error
    return found


def _place(error: BaseException) -> str:
    """Where in somebody's file the error was: "flows.py line 3: ", empty when it was in none."""
    if isinstance(error, SyntaxError):
        return f"{error.filename} line {error.lineno}: " if error.filename else ""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if f.filename != __file__ and not f.filename.startswith(_INSTALLED)]
    return f"{theirs[-1].filename} line {theirs[-1].lineno}: " if theirs else ""


def _told(error: BaseException) -> str:
    """The error in one line."""
    said = (error.msg if isinstance(error, SyntaxError) else text_of(error)).strip()
    return " ".join(f"{type(error).__name__}: {said}".split()) if said else type(error).__name__


def run_setup_cells(notebook: Path) -> int:
    """Run the notebook's cells tagged `agent-setup` in `__main__`; returns how many there were.  They are plain Python.

    Raises UsageError naming the notebook, or the cell and the line, when one cannot be read or raises.
    """
    tagged = [c for c in _cells(notebook) if c.cell_type == "code" and SETUP_TAG in c.metadata.get("tags", ())]
    for i, source in enumerate(cell.text for cell in tagged):
        file = f"<{notebook.name} {SETUP_TAG} {i + 1}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        try:
            code = compile(source, file, "exec")
        except (SyntaxError, ValueError) as error:
            raise UsageError(f"{file} is not plain Python: {_in_line(error)}", hint="leave magics out of it") from error
        try:
            exec(code, vars(sys.modules["__main__"]))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # somebody's cell may raise anything
            raise UsageError(f"{_place(error)}{_told(error)}", hint="mend the cell, or resume it in its notebook") from error
    return len(tagged)


def _in_line(error: SyntaxError | ValueError) -> str:
    return f"{error.msg} (line {error.lineno})" if isinstance(error, SyntaxError) else str(error)


def defining_cell(notebook: Path, name: str) -> str:
    """Which cell of a notebook's file defines `name`, by its number from 1 and the line; empty when none is seen to."""
    try:
        cells = _cells(notebook)
    except (UsageError, OSError):
        return ""
    line = re.compile(rf"^(?:async )?def {re.escape(name)}\b.*$", re.MULTILINE)
    for number, cell in enumerate(cells, 1):
        if cell.cell_type == "code" and (found := line.search(cell.text)):
            return f"cell {number}: {plain(found[0], 80)}"
    return ""


def _cells(notebook: Path) -> list[_Cell]:
    """Raises OSError, and UsageError when it is no notebook."""
    try:
        return msgspec.json.decode(notebook.read_bytes().removeprefix(b"\xef\xbb\xbf"), type=_Notebook).cells
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{notebook} is not a notebook: {error}", hint="restore it, or resume the task elsewhere") from error
