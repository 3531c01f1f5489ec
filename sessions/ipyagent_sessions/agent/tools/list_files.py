"""list_files: what is in the workspace."""

from __future__ import annotations

import fnmatch
from itertools import islice
from typing import Final

from ipyagent_sessions.agent.tools.declare import Tool
from ipyagent_sessions.agent.tools.workbench import Workbench
from ipyagent_sessions.workspace.workspace import Entry

_MOST: Final = 1_000


def list_files(bench: Workbench) -> Tool:
    """The tool for this workbench.  Effect none."""

    def list_files(path: str = ".", pattern: str = "*", depth: int = 1) -> str:
        """List the files and folders of the workspace, with sizes in bytes.

        Args:
            path: the folder to list, relative to the workspace.
            pattern: show only names that match, like *.csv.
            depth: how many levels of folders to show, from 1 to 20.
        """
        found = bench.workspace.walk(path, depth=min(max(depth, 1), 20))
        wanted = (e for e in found if fnmatch.fnmatchcase(e.path.rpartition("/")[2], pattern))
        shown = [_line(e) for e in islice(wanted, _MOST)]
        if next(wanted, None) is not None:
            shown.append(f"[more than {_MOST:,} entries; list a folder of it, or give a pattern]")
        return "\n".join(shown) or "nothing"

    return Tool(list_files, effect="none", unusable=lambda: no_folder(bench), more="list a folder of it, or give a pattern")


def no_folder(bench: Workbench) -> str | None:
    """Why tools for files cannot work here."""
    return None if bench.folder.is_dir() else f"the workspace {bench.folder} is not there"


def _line(entry: Entry) -> str:
    if entry.kind == "folder":
        return f"{entry.path}/" + (" (not looked into)" if entry.closed else "")
    return f"{entry.path}  {entry.size:,}" if entry.kind == "file" else f"{entry.path} ({entry.kind}, not followed)"
