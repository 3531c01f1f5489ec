"""State in three layers (R009, R053, R070-R081, R098): what the work is about, where it stands, what it runs under.

The layers are those of the source documents: business, execution, system.  A state holds nothing that is not in the log;
`folding.apply` takes events into it, and nothing else changes it.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from ipyagent_sessions.decoding import reading
from ipyagent_sessions.events import EMPTY, NULL
from ipyagent_sessions.lifecycle import TaskState

FORM: Final = 9
"""The form of the state.  It goes up when a field is added or the fold changes: snapshots of another form are folded again."""


KEPT_TASKS: Final = 100
"""How many tasks a state knows one by one."""


class Recorded(Struct, array_like=True, gc=False):
    """What the log holds of a finished activity.  With `by_reference` the result is read from event `seq` on demand."""

    seq: int
    digest: str = ""
    name: str = ""
    kind: str = "step"
    ok: bool = True
    result: Raw = NULL
    by_reference: bool = False
    result_lost: bool = False
    effect: str = "none"
    compensable: bool = False
    compensated: bool = False
    source: str = ""


class Active(Struct):
    """An activity that started and has no result yet."""

    seq: int
    name: str
    since: str
    kind: str = "step"
    key: str | None = None
    stage: str = ""
    digest: str = ""
    effect: str = "none"
    attempt: int = 1
    until: str | None = None
    compensable: bool = False
    source: str = ""
    timed_out: bool = False
    done: int | None = None
    total: int | None = None
    verifiable: bool = False


class Stage(Struct):
    """A named part of the work; `done` once its body ended."""

    name: str
    seq: int
    done: bool = False


class Section(Struct):
    """A checked section: why its attempts failed, the seq since which the present one runs, its checkpoint, and, while it is
    open, the business state at its start."""

    since: int
    current_goal: str | None
    completed: int
    values: dict[str, Any]
    large: bool
    checkpoint: int = 0
    failures: list[str] = []


class Approval(Struct):
    """A request to a person, pending or answered.  `digest` is what an answer is bound to.

    `details` are there until it is answered, of large ones `preview`, the beginning as text, and the name of their blob.
    """

    seq: int
    question: str
    digest: str
    details: Raw = NULL
    kind: str = "approval"
    activity_id: str | None = None
    choices: list[str] = []
    asked_at: str = ""
    expires_at: str | None = None
    if_ignored: str = ""
    about: list[str] = []
    answer: str | None = None
    choice: str | None = None
    reason: str = ""
    by: str = ""
    answered_at: str | None = None
    arguments: Raw = NULL
    tool: str = ""
    details_blob: str | None = None
    preview: str = ""


class TaskRecord(Struct):
    """One line about a task of the session."""

    status: str
    target: str
    title: str = ""
    queued_at: str = ""
    ended_at: str | None = None
    run_key: str = ""


class BusinessState(Struct):
    """What the work is about: goal, finished sub-tasks, files by reference, results, and the workflow's own values.

    `large` says that some of the values are kept as blobs, as {"$": "blob", "v": sha256}.
    """

    current_goal: str | None = None
    completed_subtasks: list[str] = []
    files: dict[str, dict[str, Any]] = {}
    results: dict[str, Recorded] = {}
    values: dict[str, Any] = {}
    large: bool = False


class ExecutionState(Struct):
    """Where the work stands: stages, open activities, progress, waits."""

    current_stage: str = ""
    stages: dict[str, Stage] = {}
    sections: dict[str, Section] = {}
    active_activities: dict[str, Active] = {}
    approvals: dict[str, Approval] = {}
    done: int = 0
    total: int | None = None
    failed: int = 0
    retried: int = 0
    last_activity: str = ""
    text: str = ""


class Spent(Struct):
    """What model requests used.  `unpriced` counts those whose price nobody knows: their cost is not in `cost_usd`."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0


class SystemState(Struct):
    """What the task runs under: ids, times, attempts, resources."""

    task_id: str | None = None
    status: TaskState | None = None
    reason: str = ""
    detail: str = ""
    target: str = ""
    kind: str = "workflow"
    title: str = ""
    run_key: str = ""
    cell: str | None = None
    durability: str = "sync"
    queued_seq: int = 0
    queued_at: str = ""
    started_at: str | None = None
    changed_at: str = ""
    ended_at: str | None = None
    ran_s: float = 0.0
    deadline: str | None = None
    attempt: int = 0
    recoveries: int = 0
    recovery: str = ""
    retry_counts: dict[str, int] = {}
    holder: dict[str, Any] = {}
    environment_blob: str | None = None
    default_effect: str | None = None
    error_type: str = ""
    error: str = ""
    result_seq: int | None = None
    retry_of: str | None = None
    rerun_of: str | None = None
    instruction: str = ""
    pausing: bool = False
    pickle: bool = False
    model: str = ""
    budget: dict[str, float] = {}
    extended: dict[str, float] = {}
    recover: int = 0
    spent: Spent = field(default_factory=Spent)


class Checkpointed(Struct):
    """The newest checkpoint, by seq."""

    seq: int
    label: str
    at: str
    trigger: str


class State(Struct):
    """Everything known after event `seq`; tokens and cost sum what models and tools reported.

    `begun` counts the tasks, `tasks` has the newest `KEPT_TASKS` of them: a conversation of a thousand turns does not grow its
    checkpoints (the SQL view has all).

    `allowed_tools` are those a person allowed always in this session.
    """

    seq: int = 0
    title: str = ""
    notebook: str | None = None
    created_at: str = ""
    updated_at: str = ""
    business_state: BusinessState = field(default_factory=BusinessState)
    execution_state: ExecutionState = field(default_factory=ExecutionState)
    system_state: SystemState = field(default_factory=SystemState)
    tasks: dict[str, TaskRecord] = field(default_factory=dict[str, TaskRecord])
    begun: int = 0
    checkpoint: Checkpointed | None = None
    checkpoints: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    requests: int = 0
    unpriced: int = 0
    allowed_tools: list[str] = []
    alarms: list[str] = []
    controls: list[str] = []
    asked: int = 0
    lineage: list[tuple[str, int]] = []


def encode(state: State) -> bytes:
    """The state as canonical JSON: equal states give equal bytes."""
    return msgspec.json.encode(state)


def decode(body: bytes) -> State:
    """The state of `encode`.  Raises msgspec.DecodeError or msgspec.ValidationError.

    Results are decoded one by one: what is shared among them is never there a hundred thousand times.
    """
    whole = _parts(body)
    business = _parts(whole.get("business_state", EMPTY))
    results = _parts(business.pop("results", EMPTY))
    state = _state(msgspec.json.encode({**whole, "business_state": business}))
    state.business_state.results = {activity_id: _recorded(raw) for activity_id, raw in results.items()}
    return state


def _recorded(raw: Raw) -> Recorded:
    """One result of a snapshot, which keeps nothing of that in memory; what many results have alike is one object each."""
    recorded = _result(raw)
    body = bytes(memoryview(recorded.result))
    recorded.result = NULL if body == b"null" else Raw(body)
    recorded.name, recorded.kind = intern(recorded.name), intern(recorded.kind)
    recorded.effect, recorded.source = intern(recorded.effect), intern(recorded.source)
    return recorded


_state, _result, _parts = reading(State), reading(Recorded), reading(dict[str, Raw])
