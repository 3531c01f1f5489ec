"""read_file: a text file, or some of its lines."""

from __future__ import annotations

import hashlib
from typing import Final

from ipyagent_sessions.agent.tools.declare import Tool
from ipyagent_sessions.agent.tools.list_files import no_folder
from ipyagent_sessions.agent.tools.text import decoded, kind
from ipyagent_sessions.agent.tools.workbench import Workbench

_MOST: Final = 18_000
"""Characters of a file that are shown at once: what is said about them fits into a result as well."""


def read_file(bench: Workbench) -> Tool:
    """The tool for this workbench.  Effect none; what was read is remembered."""

    def read_file(path: str, first_line: int = 1, last_line: int | None = None) -> str:
        """Read a text file of the workspace, or some of its lines.

        Args:
            path: the file, relative to the workspace.
            first_line: the first line to show, counted from 1.
            last_line: the last line to show; up to the end, or as much as fits, when left out.
        """
        data = bench.workspace.read(path)
        bench.saw(bench.workspace.normal(path), hashlib.sha256(data).hexdigest())
        text = decoded(data)
        if text is None:
            return f"{path} is {kind(data)} of {len(data):,} bytes and is not shown"
        return _part(text, max(first_line, 1), last_line)

    return Tool(read_file, effect="none", unusable=lambda: no_folder(bench), more="read fewer lines")


def _part(text: str, first: int, last: int | None) -> str:
    lines = text.splitlines(keepends=True)
    total = len(lines)
    wanted = lines[first - 1 : last]
    if not wanted:
        return "the file is empty" if not total else f"there is no line {first}: the file has {total:,} lines"
    room, shown = _MOST, 0
    for line in wanted:
        room -= len(line)
        if room < 0:
            break
        shown += 1
    if shown == 0:
        long = f"line {first} has {len(wanted[0]):,} characters and is cut here; go on with first_line={first + 1}"
        return f"{wanted[0][:_MOST]}\n[{long}]"
    body = "".join(wanted[:shown])
    end = first + shown - 1
    if first == 1 and end == total:
        return body
    rest = "" if end == total else f"; go on with first_line={end + 1}"
    return f"{body}{'' if body.endswith(chr(10)) else chr(10)}[lines {first:,} to {end:,} of {total:,}{rest}]"
