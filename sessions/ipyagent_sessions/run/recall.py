"""What the log holds of an activity, given back to the body as if it had just happened."""

from __future__ import annotations

from typing import Any

import msgspec

from ipyagent_sessions import codec, payloads
from ipyagent_sessions.errors import ActivityError, ActivityTimeout, IdentityError, ResultLost
from ipyagent_sessions.run import identity
from ipyagent_sessions.run.plan import Plan
from ipyagent_sessions.run.task import TaskRun
from ipyagent_sessions.state import Recorded


def recall(run: TaskRun, plan: Plan, recorded: Recorded) -> Any:
    """The recorded result of a finished activity.  Raises its recorded error, or IdentityError when the arguments differ."""
    if recorded.digest and recorded.digest != plan.digest:
        raise differs(run, plan, recorded.seq)
    name = plan.activity.name
    if (
        recorded.source
        and plan.activity.source
        and recorded.source != plan.activity.source
        and name not in run.changed_sources
    ):
        run.changed_sources.add(name)
        run.emit(
            "AlarmRaised",
            payloads.AlarmRaised(
                "source_changed",
                f"{name} has changed since its result was recorded; the result is kept, resume --redo {name} runs it again",
            ),
        )
    if recorded.result_lost:
        can_undo(run, plan)
        raise ResultLost(name, "ResultLost", "its result was not kept", hint="it had its effect and will not run again")
    if not recorded.ok:
        raise _recorded_error(run, recorded)
    can_undo(run, plan)
    return value_of(run, recorded, pickle=plan.activity.pickle)


def value_of(run: TaskRun, recorded: Recorded, *, pickle: bool = False) -> Any:
    """The value; a pickled one only when this task or its own activity (`pickle`) allows that and all of it was made in this
    store, else NotSerialisable."""
    trusted = (pickle or run.options.pickle) and run.session.native
    if not recorded.by_reference:
        return codec.loads(recorded.result, trust_pickle=trusted)
    event = run.rereader.event(recorded.seq)
    body = msgspec.json.decode(event.payload, type=payloads.ActivityCompleted)
    data = run.session.blobs.read(body.result_blob) if body.result_blob else bytes(memoryview(body.result))
    return codec.loads(data, trust_pickle=trusted)


def _recorded_error(run: TaskRun, recorded: Recorded) -> ActivityError:
    body = msgspec.json.decode(run.rereader.event(recorded.seq).payload, type=payloads.ActivityFailed)
    if body.timed_out:
        return ActivityTimeout(body.name, body.error, still_running=body.still_running)
    return ActivityError(body.name, body.error_type, body.error)


def differs(run: TaskRun, plan: Plan, seq: int) -> IdentityError:
    """The error for changed arguments, with those of the start that the log holds before event `seq`."""
    before = None
    for event in run.session.events(run.state.system_state.queued_seq, seq):
        if event.event_type == "ActivityStarted" and event.activity_id == plan.id:
            body = msgspec.json.decode(event.payload, type=payloads.ActivityStarted)
            before = run.session.blobs.read(body.args_blob) if body.args_blob else bytes(memoryview(body.args))
    return identity.changed(plan.id, before, plan.arguments)


def can_undo(run: TaskRun, plan: Plan) -> None:
    """Remember how to undo a completed activity, if it says how."""
    if plan.compensate is not None:
        undo = plan.compensate
        run.compensators[plan.id] = lambda: undo(*plan.args, **plan.kwargs)
