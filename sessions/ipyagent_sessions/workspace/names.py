"""Paths as a model writes them: text that is judged before any file system sees it.

What one platform takes for a name, another takes for a device, a drive or a stream; the same rules hold everywhere, so that a
session can move.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.textsafe import plain

_DEVICES: Final = frozenset(
    {"CON", "PRN", "AUX", "NUL", "CLOCK$", "CONIN$", "CONOUT$"}
    | {f"{name}{digit}" for name in ("COM", "LPT") for digit in "0123456789\u00b9\u00b2\u00b3"}
)
_BAD: Final = re.compile('[\x00-\x1f\x7f<>"|?*\\\\:\ud800-\udfff]')
_LONGEST: Final = 255
"""Bytes of one name, as most file systems have it."""
_HINT: Final = "give a path inside the workspace, with / between folders, as list_files shows it"


def parts(path: str, root: PurePath) -> tuple[str, ...]:
    """The names of `path` from the workspace `root` on; none of them for the root itself.

    An absolute path is taken when it plainly lies in `root`.  Raises UsageError for `..`, other absolute paths, drives,
    streams, device names, names that end in a dot or a space, and signs that not every platform takes.
    """
    shown = plain(path, 120)
    inside = _relative(path, root)
    if inside is None:
        raise UsageError(f"{shown} is outside of the workspace", hint=_HINT)
    names = tuple(name for name in inside.split("/") if name not in ("", "."))
    for name in names:
        why = _wrong(name)
        if why:
            raise UsageError(f"{shown}: {why}", hint=_HINT)
    return names


def _relative(path: str, root: PurePath) -> str | None:
    """`path` from the root on, None when it begins somewhere else."""
    start = root.as_posix().rstrip("/")
    text = path.replace("\\", "/") if root.drive else path
    if start and (text == start or text.startswith(f"{start}/")):
        return text[len(start) :]
    if path.startswith(("/", "\\", "~")) or re.match(r"[A-Za-z]:", path):
        return None
    return text


def _wrong(name: str) -> str:
    """Why `name` is not taken; empty when it is."""
    if name == "..":
        return "'..' could lead out of the workspace"
    found = _BAD.search(name)
    if found:
        return f"{plain(found[0])!r} is not taken in names" + (", use / between folders" if found[0] == "\\" else "")
    if name.endswith((".", " ")) or name.startswith(" "):
        return "a name does not begin with a space or end in a dot or a space"
    if name.partition(".")[0].rstrip(" ").upper() in _DEVICES:
        return f"{name} is the name of a device on Windows"
    if len(name.encode()) > _LONGEST:
        return f"a name of more than {_LONGEST} bytes"
    return ""
