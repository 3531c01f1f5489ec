"""The payload of each event type: the schemas of R082 and R092, as code.

Sizes are bytes, durations seconds, times ISO-8601 in UTC.  A value that would make an event large is kept as a blob, and the
field beside it that ends in `_blob` names its sha256.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Raw, Struct

from ipyagent_sessions.events import NULL

NOT_RUN: Final = "NotRun"
"""The error type of an attempt that was logged and whose function was not called."""
HAPPENED: Final = "happened"
RUN_AGAIN: Final = "run_again"
"""The choices of a request of the kind outcome: what a person says of a call that left no result."""
IMPORTED: Final = "imported"
"""Stands where a task's mode of durability does when a transcript tells of it: none was promised."""


class Payload(Struct, omit_defaults=True, gc=False):
    """Base: defaults are left out of the JSON."""


class SessionCreated(Payload):
    title: str = ""
    notebook: str | None = None


class SessionForked(Payload):
    parent_session: str
    parent_seq: int
    parent_hash: str
    direction: str = ""
    title: str = ""
    isolated: bool = False


class TaskQueued(Payload):
    """`run_key` identifies notebook, cell, target and arguments: the same cell run again finds its task by it.  `pickle`
    says that results which only pickle can keep were allowed.  `recover` is how often in a row it waits by itself for what is
    away or short.  `budget` bounds the task by usd, tokens, steps and time in
    s."""

    target: str
    kind: str = "workflow"
    title: str = ""
    args: Raw = NULL
    args_blob: str | None = None
    run_key: str = ""
    cell: str | None = None
    durability: str = "sync"
    source_blob: str | None = None
    timeout_s: float | None = None
    retry_of: str | None = None
    rerun_of: str | None = None
    default_effect: str | None = None
    pickle: bool = False
    model: str = ""
    budget: dict[str, float] = {}
    recover: int = 0


class TaskStarted(Payload):
    attempt: int = 1
    holder: dict[str, Any] = {}
    environment_blob: str | None = None
    deadline: str | None = None
    checkpoint_every_s: float | None = None


class TaskSuspended(Payload):
    """`reason` is approval, step_cap, budget, wait, definition, resources, network, persistence or worker_lost."""

    reason: str
    detail: str = ""
    resumes_when: str = ""
    open_activities: list[str] = []


class TaskInterrupted(Payload):
    drained: list[str] = []
    aborted: list[str] = []
    still_running: list[str] = []
    partial: str = ""


class TaskResumed(Payload):
    """`recover` is a policy that is new from here on, None where it stays (see TaskQueued)."""

    attempt: int = 1
    cause: str = ""
    instruction: str = ""
    not_restored: list[str] = []
    differences: list[str] = []
    holder: dict[str, Any] = {}
    recover: int | None = None


class TaskCompleted(Payload):
    result: Raw = NULL
    result_blob: str | None = None
    result_lost: str | None = None
    artefacts: dict[str, list[str]] = {}


class TaskFailed(Payload):
    """`where` is the line of the workflow's body that failed, `traceback` the last frames with their code."""

    error_type: str
    error: str
    cause: str = "error"
    activity_id: str | None = None
    last_checkpoint: int | None = None
    artefacts: dict[str, list[str]] = {}
    compensated: list[str] = []
    needs_person: list[str] = []
    where: str = ""
    traceback: str = ""


class TaskCancelled(Payload):
    """Of the declared compensations `compensated` ran, `compensations_pending` did not, and those of `needs_person` failed."""

    reason: str = ""
    artefacts: dict[str, list[str]] = {}
    compensated: list[str] = []
    compensations_pending: list[str] = []
    irreversible: list[str] = []
    still_running: list[str] = []
    needs_person: list[str] = []


class ActivityStarted(Payload):
    """`kind` is step, stage, sleep, note, model or tool; `effect` is none, idempotent or irreversible.  `checked` marks the
    stage of a checked section: what the business state was here is what a failing check brings back."""

    name: str
    kind: str = "step"
    key: str | None = None
    stage: str = ""
    digest: str = ""
    effect: str = "none"
    args: Raw = NULL
    args_blob: str | None = None
    source: str = ""
    until: str | None = None
    compensable: bool = False
    verifiable: bool = False
    checked: bool = False


class ActivityProgressed(Payload):
    """`total` is None while nobody knows it (R184)."""

    done: int = 0
    total: int | None = None
    text: str = ""


class ActivityCompleted(Payload):
    """`result` is the value in the tagged JSON of `codec`.  `late` says it ended after its timeout had been reported,
    `verified` that a verify function or a person vouched for it."""

    name: str
    kind: str = "step"
    digest: str = ""
    result: Raw = NULL
    result_blob: str | None = None
    result_lost: str | None = None
    late: bool = False
    verified: str | None = None


class ActivityFailed(Payload):
    """With `aborted` it is no result: the call was cut short, and with an effect its outcome is unknown."""

    name: str
    error_type: str
    error: str
    kind: str = "step"
    digest: str = ""
    traceback: str = ""
    timed_out: bool = False
    still_running: bool = False
    aborted: bool = False


class ActivityRetried(Payload):
    """One attempt failed and another follows after `wait_s`."""

    name: str
    error_type: str
    error: str
    wait_s: float = 0.0


class ActivityCompensated(Payload):
    name: str
    ok: bool = True
    error: str = ""


class StateChanged(Payload):
    """`op` is set or append; `path` is a key of the business state, dotted for nested objects."""

    path: str
    value: Raw = NULL
    op: str = "set"
    value_blob: str | None = None


class ApprovalRequested(Payload):
    """`digest` covers question, details and choices: an answer is bound to it.  `if_ignored` says what expiry does.  `kind` is
    approval, outcome or tool; for a tool call `tool` is its name and `details` holds its arguments.  Of details that are
    kept as a blob `preview` has the beginning, as text."""

    approval_id: str
    question: str
    details: Raw = NULL
    digest: str = ""
    kind: str = "approval"
    choices: list[str] = []
    expires_at: str | None = None
    if_ignored: str = "waits for an answer"
    effect: str | None = None
    about: list[str] = []
    tool: str = ""
    details_blob: str | None = None
    preview: str = ""


class ApprovalResolved(Payload):
    """`arguments` are those of a tool call as the person changed them, null when they did not; with `always` the tool needs
    no approval in this session from now on.  `about` are the open calls that an answer to "did it happen?" is about (none
    named: all of the request); with `partial` others of the request still wait."""

    approval_id: str
    answer: str
    choice: str | None = None
    reason: str = ""
    digest: str = ""
    by: str = ""
    arguments: Raw = NULL
    always: bool = False
    about: list[str] = []
    partial: bool = False


class FileWritten(Payload):
    """`checksum` is of what it holds, null when it is gone.  `before` names the blob of what the file held, null when there
    was none or it is not kept; `after` that of what it is to hold, of a text that a merge could need.  `tool` and `call` say
    which call of an agent's tool wrote it; `tool` is "checked section" when one noticed it."""

    path: str
    checksum: str | None
    size: int | None = None
    lines: int | None = None
    before: str | None = None
    before_checksum: str | None = None
    tool: str = ""
    call: str = ""
    after: str | None = None


class EffectDeclared(Payload):
    """What an activity was about to change: `what` is one word of its own (row, request), `name` says which one."""

    what: str
    name: str
    note: str = ""


class FileRolledBack(Payload):
    """A file was brought back: the writes told at the seqs `undoes` are undone.  `checksum` is of what it holds now, null when
    it is gone; `before` names the blob of what was replaced.  `merged` says that later edits by others were kept."""

    path: str
    undoes: list[int]
    checksum: str | None = None
    size: int | None = None
    before: str | None = None
    before_checksum: str | None = None
    merged: bool = False


class CheckFailed(Payload):
    """An attempt of a checked section failed its check (`why`), and is rolled back: the business state is again what it was at
    the checkpoint with the seq `checkpoint`.  `files` are those that are back, `kept` those that are not, since somebody else
    may have changed them; `compensated` are activities that were undone, `stays` irreversible ones that nothing undid."""

    name: str
    attempt: int
    attempts: int
    why: str
    sentence: str
    checkpoint: int
    files: list[str] = []
    kept: list[str] = []
    compensated: list[str] = []
    stays: list[str] = []


class CheckpointCreated(Payload):
    """`label` is the stage number (1, 2.1, ...), the person's own label, or empty; `trigger` says why it was taken."""

    trigger: str
    label: str = ""


class RecoveryCompleted(Payload):
    """`cause` is worker_lost, or resources where memory ran short.  Of the open calls `repeated` run again, of `to_verify` a
    verify function says whether they happened, of `unknown` a person does.  `steps` says what detect, assess, prepare,
    restore, continue and verify came to; `lost_work_s` is the time that the open calls had taken by the last sign of life."""

    from_seq: int
    cause: str
    sentence: str = ""
    checkpoint_seq: int | None = None
    checkpoints_refused: list[int] = []
    duration_ms: float = 0.0
    lost_events: int = 0
    repeated: list[str] = []
    unknown: list[str] = []
    not_restored: list[str] = []
    to_verify: list[str] = []
    steps: dict[str, str] = {}
    lost_work_s: float = 0.0


class ControlRequested(Payload):
    """`outcome` is accepted or refused; `reason` says why it was refused."""

    control_id: str
    action: str
    outcome: str = "accepted"
    reason: str = ""
    args: dict[str, Any] = {}


class MessageAdded(Payload):
    """One message of an agent's conversation.

    `index` is its place in the conversation: a message at a place that was taken replaces it and all after it.  `message` is
    pydantic-ai's own form of it, `text` what a person would read of it.  `role` is user, assistant, tool, or system; `tools`
    names the tools it calls.  `partial` marks what had come of an answer when it was cut short: that is no part of the
    conversation.  `closing` marks what was added once the turn had its output, which no model is asked to answer.  `left`
    messages follow that were added together with this one: they count once the last of them is there."""

    role: str
    text: str = ""
    index: int = 0
    message: Raw = NULL
    message_blob: str | None = None
    model: str = ""
    finish_reason: str = ""
    tools: list[str] = []
    partial: bool = False
    closing: bool = False
    left: int = 0


class FileRead(Payload):
    """A model has seen a file."""

    path: str
    checksum: str


class PictureMade(Payload):
    """A tool made a picture, which is the blob."""

    blob: str
    media_type: str


class ProcessNoted(Payload):
    """A tool has started a process, or saw its end.  `started` is in seconds since the epoch; `stopped` says that it did not
    end by itself."""

    pid: Annotated[int, Meta(ge=0, lt=2**31)]
    started: float
    command: str = ""
    mark: str = ""
    stopped: bool = False


class BudgetExceeded(Payload):
    """`what` is usd, tokens, steps or time; `scope` is task or session; the next model request was not made."""

    what: str
    scope: str
    limit: float
    spent: float


class AlarmRaised(Payload):
    kind: str
    text: str


class ConfigChanged(Payload):
    """The settings of a resumed task that differ from those of its first start, each as [then, now].  A file of settings is
    told by its sha256, as `settings.<layer>`."""

    changed: dict[str, Any]


SCHEMAS: dict[str, type[Payload]] = {
    cls.__name__: cls
    for cls in (
        SessionCreated,
        SessionForked,
        TaskQueued,
        TaskStarted,
        TaskSuspended,
        TaskInterrupted,
        TaskResumed,
        TaskCompleted,
        TaskFailed,
        TaskCancelled,
        ActivityStarted,
        ActivityProgressed,
        ActivityCompleted,
        ActivityFailed,
        ActivityRetried,
        ActivityCompensated,
        StateChanged,
        ApprovalRequested,
        ApprovalResolved,
        FileWritten,
        FileRolledBack,
        EffectDeclared,
        CheckFailed,
        CheckpointCreated,
        RecoveryCompleted,
        ControlRequested,
        AlarmRaised,
        MessageAdded,
        BudgetExceeded,
        ConfigChanged,
    )
}

NOTED: Final[dict[str, type[Payload]]] = {
    "FileRead": FileRead,
    "PictureMade": PictureMade,
    "ProcessStarted": ProcessNoted,
    "ProcessEnded": ProcessNoted,
}
"""What an agent's tools note under names of their own: ignorable, and not folded."""
