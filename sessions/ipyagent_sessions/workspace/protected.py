"""Files and folders that no tool may touch although they may lie in the workspace: the sessions, the settings that permit.

They are known by what they are (device and inode) and by where they stand, so no link, no spelling and no hard link leads
around; one that does not exist yet cannot be made either.
"""

from __future__ import annotations

import contextlib
import os
import unicodedata
from pathlib import Path

from ipyagent_sessions.config import PROJECT_FILE, settings_files

Identity = tuple[int, int]


class Protected:
    """What `paths` name, whether they exist or not."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths

    def holds(self, found: Identity) -> bool:
        """Whether a file or folder of this device and inode is one of them."""
        return any(_identity(path) == found for path in self._paths)

    def covers(self, folder: Identity, name: str) -> bool:
        """Whether one of them has this name in this folder."""
        return any(_same(path.name, name) and _identity(path.parent) == folder for path in self._paths)


def permissions(store: Path, *folders: Path) -> tuple[Path, ...]:
    """What permits something to whoever works in `folders`: the store, and where their settings stand or would count."""
    return (store, *(path for folder in folders for path in settings_files(folder)))


def permits(name: str) -> bool:
    """Whether a file of this name gives permissions, wherever it lies: a notebook beside it would take it for its settings."""
    return _same(name, PROJECT_FILE)


def _identity(path: Path) -> Identity | None:
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


def _same(one: str, other: str) -> bool:
    """Whether two names may be the same on some file system."""
    return _folded(one) == _folded(other)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
