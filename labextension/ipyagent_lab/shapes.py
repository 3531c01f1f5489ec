"""What goes over the wire, as Structs; the TypeScript in `docs/server-api.md` is made from them (`typescript`).

Here is what concerns the list and the server; what is told and asked of one session is in `ipyagent_sessions.serving.shapes`.

Times are ISO-8601 in UTC, or seconds since the epoch where the name says `since`; sizes are bytes, money US dollars.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from ipyagent_sessions.retention.deletion import Loss
from ipyagent_sessions.serving.problems import Problem
from ipyagent_sessions.serving.shapes import (
    Aftermath,
    AnswerArgs,
    CancelArgs,
    CardMessage,
    CheckpointArgs,
    Compared,
    ControlBody,
    Detail,
    EventPage,
    ForkBody,
    Forked,
    Hello,
    NoArgs,
    Outcome,
    ProblemMessage,
    RenameArgs,
    Shown,
    States,
    Wanted,
)

SORTS: Final = ("-updated", "updated", "-created", "created", "title", "-title", "-cost", "cost")
SUBSCRIPTIONS: Final = 64
"""How many sessions one page may watch."""


class Row(Struct):
    """A session in a list.

    `state` is the effective one: a state of the lifecycle, `lost`, `empty` (no task yet) or `damaged` (then `problem` says
    why, and what could not be read is empty).  `silent_since` is when a holder that should be alive was last heard of, once
    that is longer ago than two heartbeats.
    """

    session_id: str
    state: str
    title: str = ""
    task_id: str | None = None
    target: str = ""
    notebook: str | None = None
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
    created_at: str = ""
    updated_at: str = ""
    parent: str | None = None
    model: str = ""
    silent_since: float | None = None
    problem: str = ""


class Counts(Struct):
    """How many sessions there are, in each effective state, and how many wait for a person.  Filters do not change it."""

    total: int
    needs_you: int
    states: dict[str, int]


class Page(Struct):
    """A page of the list.

    `next` is the cursor of the page after it, null on the last one; `matched` counts the rows of all pages.  `filling` says
    that the server still reads older sessions: `matched` and `counts` will grow.  `left_out` sessions are older than the
    server keeps.
    """

    rows: list[Row]
    next: str | None
    matched: int
    counts: Counts
    revision: int
    filling: bool
    left_out: int


class Status(Struct):
    """Who answers, over which store.  `differences` are sentences about what does not fit the asker (`?version=` and
    `?store=`)."""

    api: int
    version: str
    python: str
    jupyter_server: str
    store_id: str
    store: str
    format: int
    sessions: int
    filling: bool
    watching: str
    differences: list[str]


class DeleteBody(Struct, forbid_unknown_fields=True):
    """`events` is how many the person was told of: a session that has grown since is not deleted."""

    events: int


class ListMessage(Struct, tag="list", tag_field="type"):
    """Rows that are new or have changed, and ids that are gone.  The first one after `list: true` has only counts and
    revision."""

    changed: list[Row]
    removed: list[str]
    counts: Counts
    revision: int
    filling: bool


class Notice(Struct):
    """Something that a person wants to know of while they look elsewhere; `kind` is needs_you, completed, failed or lost.

    `id` is that of the event that made it so: who has told it once does not tell it again.
    """

    id: str
    kind: str
    session_id: str
    title: str
    text: str
    at: str
    notebook: str | None


class NoticeMessage(Struct, tag="notices", tag_field="type"):
    """To pages that follow the list: what is new, and after a reconnect the last ones again."""

    notices: list[Notice]


Message = Hello | CardMessage | ListMessage | NoticeMessage | ProblemMessage
SPOKEN: Final[tuple[type[Any], ...]] = (
    Problem,
    Status,
    Row,
    Counts,
    Page,
    Shown,
    Detail,
    EventPage,
    States,
    ControlBody,
    NoArgs,
    CancelArgs,
    AnswerArgs,
    CheckpointArgs,
    RenameArgs,
    Outcome,
    ForkBody,
    Forked,
    Aftermath,
    Compared,
    Loss,
    DeleteBody,
    Wanted,
    Hello,
    CardMessage,
    ListMessage,
    NoticeMessage,
    ProblemMessage,
)
"""The roots of the contract; what they hold is found from them."""
