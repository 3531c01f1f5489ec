"""What is told of a session and asked of it, as Structs: the same over HTTP, over a socket and over the comm of a widget.

Times are ISO-8601 in UTC, or seconds since the epoch where the name says `since`; sizes are bytes, money US dollars.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET, Raw, Struct, UnsetType, field

from ipyagent_sessions.events import Event
from ipyagent_sessions.log.checkpoints import Info
from ipyagent_sessions.place import Header
from ipyagent_sessions.serving.problems import Problem
from ipyagent_sessions.views.card import Card
from ipyagent_sessions.views.compare import Comparison

API: Final = 1
"""The version of this contract; it changes when a page written for the old one would misread the new one."""


class Shown(Struct):
    """A session's current task as it is shown.  `partial` is the end of an answer that is still being streamed."""

    session_id: str
    card: Card
    partial: str
    silent_since: float | None
    holder: str | None


class TaskLine(Struct):
    """A task of a session, oldest first.  `last_seq` is its newest event: the state there is the last picture of it."""

    task_id: str
    status: str
    target: str
    title: str
    queued_at: str
    ended_at: str | None
    last_seq: int


class Detail(Struct):
    """All about a session.  Events up to `inherited_until` (0 when it is no fork) belong to its ancestors.

    `cell` is the id of the notebook's cell that started the task, `definition` where its workflow is found: a module, or
    `__main__` when it lives in the kernel of its notebook.
    """

    shown: Shown
    title: str
    header: Header
    tasks: list[TaskLine]
    checkpoints: list[Info]
    children: list[str]
    inherited_until: int
    model: str
    cell: str | None
    definition: str


class EventLine(Event, omit_defaults=True, frozen=True):
    """An event; fields that have their default are left out.

    A payload of more than `max_payload` bytes is left out too and `payload_bytes` says how long it is.  `blobs` gives the size
    of each blob that the payload names (under a key that ends in `_blob`), null when its file is missing.
    """

    payload_bytes: int | None = None
    blobs: dict[str, int | None] = {}  # noqa: RUF012  # ruff does not see that Event is a Struct, which copies it


class EventPage(Struct):
    """Events in order.  `next` is the `after` of the page behind it, null when this one reaches the end of the log; `until` is
    the last event that was looked at, whether it is among them or not."""

    events: list[EventLine]
    next: int | None
    inherited_until: int
    until: int


class States(Struct):
    """Cards as they were right after each event asked for, ascending; `card.seq` says which.  Nothing can be done to the past:
    every action but `log` gives that as its reason."""

    cards: list[Card]


class ControlBody(Struct, forbid_unknown_fields=True):
    """`expects` are the states that the person saw (`lost` is one of them).  `task_id` is needed for all but rename."""

    action: Literal["pause", "resume", "cancel", "answer", "checkpoint", "rename"]
    task_id: str | None = None
    expects: list[str] = []
    args: Raw = Raw(b"{}")


class NoArgs(Struct, forbid_unknown_fields=True):
    """For pause (a second one aborts what is being waited for) and resume."""


class CancelArgs(Struct, forbid_unknown_fields=True):
    """For cancel."""

    reason: str = ""


class AnswerArgs(Struct, forbid_unknown_fields=True):
    """For answer.  `digest` is that of the `Ask` the person read: what is asked now must be what was shown.

    An approved tool call may be given other `arguments`; `always` approves this tool for the rest of the session.  Where calls
    may have happened, `activity` names one of them (default: all), and `result` is what it returned.
    """

    approval_id: str
    answer: Literal["approved", "denied"]
    digest: str
    choice: str | None = None
    reason: str = ""
    arguments: dict[str, Any] | None = None
    always: bool | None = None
    activity: str | None = None
    result: Any = UNSET


class CheckpointArgs(Struct, forbid_unknown_fields=True):
    """For checkpoint."""

    label: str = ""


class RenameArgs(Struct, forbid_unknown_fields=True):
    """For rename."""

    title: str


ARGS: Final[dict[str, type[NoArgs | CancelArgs | AnswerArgs | CheckpointArgs | RenameArgs]]] = {
    "pause": NoArgs,
    "resume": NoArgs,
    "cancel": CancelArgs,
    "answer": AnswerArgs,
    "checkpoint": CheckpointArgs,
    "rename": RenameArgs,
}


class Outcome(Struct):
    """`accepted` and logged (200), or `pending` (202): the holder has not answered within 5 seconds and will when it can.  A
    refusal is a 409 `ControlRefused`."""

    outcome: Literal["accepted", "pending"]
    action: str
    control_id: str | None = None


class ForkBody(Struct, forbid_unknown_fields=True):
    """`at` null means the newest event; `direction` is what to do differently.  With `isolate` the fork works in a workspace
    of its own."""

    at: int | None = None
    direction: str = ""
    title: str = ""
    isolate: bool = False


class Forked(Struct):
    """The new session."""

    session_id: str
    parent: str
    at: int


class Aftermath(Struct):
    """What a fork at event `at` means.

    `effects` name what was done to the world after it and is not undone, `more` counts those beyond the first hundred.  Inside
    `open` activities no fork begins: `nearest` is the last event before where one can, null when there is none.  `ended` says
    that the task has ended there already, so that a fork can only be given a new one.
    """

    at: int
    nearest: int | None
    open: list[str]
    ended: bool
    effects: list[str]
    more: int


class Side(Struct):
    """One of two sessions that are compared."""

    title: str
    card: Card


class Compared(Struct):
    """Two sessions side by side."""

    left: Side
    right: Side
    comparison: Comparison


class Wanted(Struct, forbid_unknown_fields=True):
    """From the page: each message replaces what it names.  `subscribe` is the whole set of sessions to watch, `list` whether
    to follow the list."""

    subscribe: list[str] | UnsetType = UNSET
    rows: bool | UnsetType = field(default=UNSET, name="list")


class Hello(Struct, tag="hello", tag_field="type"):
    """The first message."""

    api: int
    version: str


class CardMessage(Struct, tag="card", tag_field="type"):
    """The newest picture of a watched session; sent at once after subscribing, then at most ten times a second."""

    shown: Shown


class ProblemMessage(Struct, tag="problem", tag_field="type"):
    """A watched session cannot be read, or (`session_id` null) the page's message was not understood."""

    session_id: str | None
    problem: Problem
