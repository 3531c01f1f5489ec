"""Texts against each other: what differs, and what both sides changed, brought together."""

from __future__ import annotations

import difflib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.textsafe import plain_lines

_LONGEST: Final = 80
"""Lines of a difference that are shown."""
_PATIENCE_S: Final = 30.0


class Conflict(UsageError):
    """Both sides changed the same lines; the message carries them."""


def text_of(data: bytes) -> str | None:
    """`data` as text, None when it is none."""
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def difference(recorded: bytes | None, now: bytes | None) -> str:
    """What somebody changed since, as a unified difference of at most eighty lines; empty when it cannot be shown."""
    if recorded is None or now is None:
        return ""
    old, new = text_of(recorded), text_of(now)
    if old is None or new is None:
        return ""
    found = difflib.unified_diff(old.splitlines(), new.splitlines(), "as it was written", "as it is now", lineterm="", n=2)
    lines = list(found)
    more = [f"... {len(lines) - _LONGEST} more lines"] if len(lines) > _LONGEST else []
    return plain_lines("\n".join([*lines[:_LONGEST], *more]))


def three_way(written: bytes, now: bytes, before: bytes) -> bytes:
    """`now` without the change from `before` to `written`: the later edits by others stay.

    Raises Conflict when they touch the same lines, UsageError when there is no git or one of them is no text.
    """
    git = shutil.which("git")
    if git is None:
        raise UsageError("a merge needs git, which is not here", hint="bring the file back by hand")
    if any(text_of(data) is None for data in (written, now, before)):
        raise UsageError("only texts can be merged")
    with tempfile.TemporaryDirectory(prefix="ipyagent-merge-") as folder:
        names = []
        for name, data in (("now", now), ("written", written), ("before", before)):
            (Path(folder) / name).write_bytes(data)
            names.append(name)
        labels = ["-L", "as it is now", "-L", "as it was written", "-L", "as it was before"]
        try:
            done = subprocess.run(
                [git, "merge-file", "-p", *labels, *names],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"git merge-file did not work: {error}") from error
    if done.returncode < 0 or done.returncode > 127:
        raise UsageError(f"git merge-file did not work: {done.stderr.decode(errors='replace').strip()[:200]}")
    if done.returncode:
        shown = done.stdout.decode(errors="replace").splitlines()[:_LONGEST]
        raise Conflict(plain_lines("\n".join(["the same lines were changed since:", *shown])))
    return done.stdout
