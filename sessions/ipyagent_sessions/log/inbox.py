"""Control requests: one file each, put there by an atomic rename, removed once its outcome is logged.

Any process that can write to the session's folder may ask; only the holder of the lease answers, by logging
`ControlRequested`. A request that was logged before a crash but not yet removed is recognised by its id.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ipyagent_sessions.log.files import Disk
from ipyagent_sessions.log.layout import Layout


class Control(Struct, omit_defaults=True):
    """What somebody asks for.

    `action` is pause, resume, cancel, answer, redo, checkpoint or rename.  `expects` is the state of the task that the asker
    saw: a request whose task has moved on is refused, not applied to the next thing.
    """

    id: str
    action: str
    actor: str
    at: str
    task_id: str | None = None
    expects: list[str] = []
    args: dict[str, Any] = {}


def put(layout: Layout, control: Control, disk: Disk) -> None:
    """Leave a request in the inbox, durably."""
    layout.inbox.mkdir(exist_ok=True)
    disk.write_whole(layout.inbox / f"{control.id}.json", msgspec.json.encode(control), what="control")


def waiting(layout: Layout) -> list[Control]:
    """The requests that wait, oldest first.  One that cannot be read is set aside, never a reason to stop."""
    try:
        names = [p for p in layout.inbox.iterdir() if p.suffix == ".json"]
    except FileNotFoundError:
        return []
    out = []
    for path in names:
        try:
            out.append(msgspec.json.decode(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), type=Control))
        except FileNotFoundError:
            continue
        except msgspec.DecodeError:
            layout.damaged.mkdir(exist_ok=True)
            path.replace(layout.damaged / path.name)
    return sorted(out, key=lambda c: (c.at, c.id))


def remove(layout: Layout, control_id: str) -> None:
    """Take a request out of the inbox, after its outcome is durable."""
    (layout.inbox / f"{control_id}.json").unlink(missing_ok=True)
