"""Where a workflow's body failed: short enough for the log, and for one line."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any, Final

KEPT: Final = 6
"""How many frames are kept, the last ones."""
_WIDEST: Final = 200
_OWN: Final = os.path.join(str(Path(__file__).parents[1]), "")


def of(error: BaseException, function: Any) -> tuple[str, str]:
    """The last frames of `error` outside of this package, each as file, line, name and code, at most `KEPT` of them; and where
    in the file of `function` it was: "cell line 3", empty when that is none of the user's.  Both are empty for an error that
    was not raised.

    Files are named by their last two parts; what has no file is a cell.
    """
    found = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_OWN)]
    if not found:
        return "", ""
    home = getattr(getattr(function, "__code__", None), "co_filename", None)
    place = next((f for f in reversed(found) if f.filename == home), None)
    told = [
        f"{_file(f)} line {f.lineno}, in {f.name}" + (f"\n    {f.line[:_WIDEST]}" if f.line else "") for f in found[-KEPT:]
    ]
    return "\n".join(told), f"{_file(place)} line {place.lineno}" if place is not None else ""


def text_of(error: BaseException) -> str:
    """What an error says; one whose text cannot be made says so."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001  # somebody's __str__
        return f"its text cannot be made: {type(broken).__name__}"


def _file(frame: traceback.FrameSummary) -> str:
    if frame.filename.startswith("<ipython-input") or not (frame.filename.startswith("<") or os.path.exists(frame.filename)):
        return "cell"
    return "/".join(Path(frame.filename).parts[-2:])[-_WIDEST:]
