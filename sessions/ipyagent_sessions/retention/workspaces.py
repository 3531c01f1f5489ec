"""The workspaces of isolated forks: where they are, who uses them, and how they go.

<store>/w/<id>/    a worktree of a git repository, or a copy of a folder
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Final

from msgspec import Struct

from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.place import Place
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.workspace.git import git

_FRESH_S: Final = 3600.0
"""A workspace that nobody names may belong to a fork that is just being made."""


class Left(Struct):
    """A workspace that no session names any more: what a fork or a delete that was cut short left.  `size` is bytes."""

    file: str
    size: int
    why: str = "no session works there any more"


def size_of(folder: Path) -> int:
    """Bytes of the files below `folder`; no link is followed."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size
    return total


def remove(folder: Path) -> None:
    """Remove a workspace; a worktree is also taken off the list of its repository, whose branches and commits stay."""
    if (folder / ".git").is_file():
        with contextlib.suppress(IpyagentError):
            common = git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
            if common.returncode == 0:
                git(Path(os.fsdecode(common.stdout.rstrip(b"\n"))), "worktree", "remove", "--force", os.fspath(folder))
    shutil.rmtree(folder, ignore_errors=True)


def used(place: Place, session_ids: list[str]) -> dict[str, list[str]]:
    """Which of the sessions work in which workspace, by its id."""
    found: dict[str, list[str]] = {}
    for session_id in session_ids:
        with contextlib.suppress(IpyagentError):
            name = Session(place, session_id).workspace_name
            if name is not None:
                found.setdefault(name.partition("/")[0], []).append(session_id)
    return found


def left(store: Store) -> list[Left]:
    """The workspaces that no session names; none while a session cannot be read, which may work in one.  One of the last hour
    may be in the making and is not among them."""
    if not store.workspaces_folder.is_dir() or store.unreadable():
        return []
    named = used(store, store.session_ids())
    found = []
    for folder in sorted(store.workspaces_folder.iterdir()):
        with contextlib.suppress(OSError):
            if folder.name not in named and time.time() - folder.lstat().st_mtime > _FRESH_S:
                found.append(Left(f"w/{folder.name}", size_of(folder)))
    return found
