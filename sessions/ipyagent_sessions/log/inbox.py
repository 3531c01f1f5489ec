"""Control requests: one file each, put there by an atomic rename, removed once its outcome is logged.

Any process that can write to the session's folder may ask; only the holder of the lease answers, by logging
`ControlRequested`. A request that was logged before a crash but not yet removed is recognised by its id.
"""

from __future__ import annotations

import contextlib
import re
import stat
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.log.files import Disk
from ipyagent_sessions.log.layout import Layout

_ID: Final = re.compile(r"[a-z0-9-]{1,40}")
_LARGEST: Final = 1 << 20
"""A request of more bytes is not one of ours."""


class Control(Struct, omit_defaults=True):
    """What somebody asks for.

    `action` is pause, resume, cancel, answer, checkpoint or rename.  `expects` is the state of the task that the asker
    saw, `attempt` which of its executions it was, 0 when that is not known: a request whose task has moved on is refused, not
    applied to the next thing.
    """

    id: str
    action: str
    actor: str
    at: str
    task_id: str | None = None
    expects: list[str] = []
    args: dict[str, Any] = {}
    attempt: int = 0


def put(layout: Layout, control: Control, disk: Disk) -> None:
    """Leave a request in the inbox, durably."""
    layout.inbox.mkdir(exist_ok=True)
    disk.write_whole(layout.inbox / f"{control.id}.json", msgspec.json.encode(control), what="control")


def waiting(layout: Layout) -> list[Control]:
    """The requests that wait, oldest first.

    What is none is set aside: not a file, too large, not readable as a request, or with another id than its file's name.  What
    the disk refuses to give now is left for the next look.  Neither is a reason to stop.
    """
    out = []
    with contextlib.suppress(OSError):
        for path in [p for p in layout.inbox.iterdir() if p.suffix == ".json"]:
            with contextlib.suppress(OSError):
                found = _read(path)
                if found is None:
                    _set_aside(layout, path)
                else:
                    out.append(found)
    return sorted(out, key=lambda c: (c.at, c.id))


def _read(path: Path) -> Control | None:
    """The request in a file; None when it is none.  Raises OSError."""
    known = path.lstat()
    if not stat.S_ISREG(known.st_mode) or known.st_size > _LARGEST:
        return None
    try:
        found = from_json(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), Control)
    except msgspec.DecodeError:
        return None
    return found if found.id == path.stem and _ID.fullmatch(found.id) else None


def set_aside(layout: Layout, control_id: str) -> None:
    """Take a request that cannot be handled out of the way, if the disk allows."""
    if _ID.fullmatch(control_id):
        with contextlib.suppress(OSError):
            _set_aside(layout, layout.inbox / f"{control_id}.json")


def _set_aside(layout: Layout, path: Path) -> None:
    layout.damaged.mkdir(exist_ok=True)
    path.replace(layout.damaged / path.name)


def remove(layout: Layout, control_id: str) -> None:
    """Take a request out of the inbox, after its outcome is durable."""
    if _ID.fullmatch(control_id):  # an id from a file must not name a place outside
        (layout.inbox / f"{control_id}.json").unlink(missing_ok=True)
