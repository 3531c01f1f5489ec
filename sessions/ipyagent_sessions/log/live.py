"""What is going on now, and a summary of what is known: two small files that anybody may read and delete.

`live.json` is not history: heartbeat, current activities, resources, partial text; replaced at most five times a second, never
synced, gone without harm.  `summary.json` is replaced at each change of a task's state and rebuilt from the log when missing.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.log.files import Disk
from ipyagent_sessions.log.layout import Layout

_Kind = TypeVar("_Kind")


class Live(Struct, omit_defaults=True):
    """`now` is a list of what runs, as texts; `cpu` is percent of one core, memory and disk are bytes; times are seconds since
    the epoch.  `rss` is this process's memory, `memory_used` and `memory_total` are those of what limits it, its container or
    the machine; `kills` counts what the system has killed for lack of memory.  `degraded` is the text of a standing alarm, as
    when the disk refuses."""

    task_id: str
    epoch: int
    heartbeat: float
    state: str = "running"
    now: list[str] = []
    stage: str = ""
    done: int = 0
    total: int | None = None
    text: str = ""
    partial: str = ""
    cpu: float | None = None
    rss: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    kills: int | None = None
    disk_free: int | None = None
    disk_total: int | None = None
    durable_seq: int = 0
    last_seq: int = 0
    next_checkpoint: float | None = None
    degraded: str = ""


class Summary(Struct, omit_defaults=True):
    """What a list of sessions shows of one.  `seq` is the event it was made at, `form` that of the state it was made from."""

    session_id: str
    seq: int
    title: str = ""
    notebook: str | None = None
    created_at: str = ""
    updated_at: str = ""
    task_id: str | None = None
    target: str = ""
    run_key: str = ""
    state: str = ""
    reason: str = ""
    detail: str = ""
    done: int = 0
    total: int | None = None
    failed: int = 0
    needs_you: int = 0
    tasks: int = 0
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    parent: str | None = None
    model: str = ""
    kind: str = "workflow"
    form: int = 0


def write_live(layout: Layout, live: Live, disk: Disk) -> None:
    """Replace `live.json`; a full disk is no reason to stop, the heartbeat is only missed."""
    with contextlib.suppress(OSError):
        disk.replace(layout.live, msgspec.json.encode(live))


def read_live(layout: Layout) -> Live | None:
    return _read(layout.live, Live)


def write_summary(layout: Layout, summary: Summary, disk: Disk) -> None:
    """Replace `summary.json`; it can be rebuilt, so a full disk is no reason to stop."""
    with contextlib.suppress(OSError):
        disk.replace(layout.summary, msgspec.json.encode(summary))


def read_summary(layout: Layout) -> Summary | None:
    return _read(layout.summary, Summary)


def _read(path: Path, kind: type[_Kind]) -> _Kind | None:
    try:
        return from_json(path.read_bytes(), kind)
    except (OSError, msgspec.DecodeError):
        return None
