"""What files hold before and after an attempt of a checked section."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.workspace.protected import permits
from ipyagent_sessions.workspace.workspace import Workspace

MOST: Final = 2_000
"""How many files of a section are noted."""
LARGEST: Final = 16 * 2**20
"""Bytes that they hold together."""


def note(workspace: Workspace, patterns: Sequence[str]) -> dict[str, bytes]:
    """What the files of the workspace that match hold, by path; none that links lead to, and none of ipyagent's own.

    Raises UsageError when they are more than `MOST`, or hold more than `LARGEST` bytes.
    """
    wanted = [_expression(pattern) for pattern in patterns]
    held: dict[str, bytes] = {}
    size = 0
    for entry in workspace.walk():
        if entry.kind != "file" or permits(entry.path.rpartition("/")[2]):
            continue
        if not any(expression.fullmatch(entry.path) for expression in wanted):
            continue
        size += entry.size
        if len(held) >= MOST or size > LARGEST:
            raise UsageError(
                f"files={list(patterns)} match more than {MOST:,} files or {LARGEST:,} bytes in {workspace.root}",
                hint="what is noted for a roll back is kept in the log: name only what the part changes",
            )
        data = workspace.read_if_there(entry.path)
        if data is not None:
            held[entry.path] = data
    return held


def changed(before: dict[str, bytes], now: dict[str, bytes]) -> dict[str, bytes | None]:
    """What the files hold now that do not hold what they did; None for one that is gone."""
    paths = sorted(before.keys() | now.keys())
    return {path: now.get(path) for path in paths if before.get(path) != now.get(path)}


def _expression(pattern: str) -> re.Pattern[str]:
    """A pattern of paths: `*` and `?` stay within a name, `**` stands for any folders."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.removeprefix("./"))
    return re.compile("".join(_SIGNS.get(part) or re.escape(part) for part in parts), re.DOTALL)


_SIGNS: Final = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
