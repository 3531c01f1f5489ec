"""`ctx`: what the body of a workflow may call.

On resume the body runs again from its top, and whatever is recorded is returned at once.  So effects belong into activities, and
everything here that could differ from one run to the next (time, chance, answers, activities) has an identity and is recorded.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import hashlib
import os
import random
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import msgspec
from msgspec import Raw, Struct

from ipyagent_sessions import codec, payloads
from ipyagent_sessions import events as ev
from ipyagent_sessions.config import seconds
from ipyagent_sessions.errors import ActivityError, ActivityTimeout, IdentityError, ResultLost, UsageError
from ipyagent_sessions.run import calls, identity, settle
from ipyagent_sessions.run.definitions import EFFECTS, Activity, Effect, Retry
from ipyagent_sessions.run.execute import Plan, current, default_retry, execute
from ipyagent_sessions.run.task import TaskRun
from ipyagent_sessions.state import Recorded

_OWN: Final = frozenset(
    {
        "SessionCreated",
        "SessionForked",
        "CheckpointCreated",
        "RecoveryCompleted",
        "ControlRequested",
        "ApprovalRequested",
        "ApprovalResolved",
        "StateChanged",
        "MessageAdded",
        "BudgetExceeded",
    }
)
_OPTIONS: Final = ("key", "effect", "retry", "timeout", "verify", "compensate", "isolate", "name")


class Answer(Struct, frozen=True):
    """What a person answered; true when approved."""

    approved: bool
    choice: str | None = None
    reason: str = ""
    by: str = ""

    def __bool__(self) -> bool:
        return self.approved


class Context:
    """The first argument of a workflow."""

    def __init__(self, run: TaskRun) -> None:
        self._run = run
        self._stages: list[str] = []
        self._children: dict[str, int] = {}
        self._occurrences: dict[str, int] = {}
        self._seen: set[str] = set()
        self._open: dict[str, set[str]] = {}
        self._activities: dict[Any, Activity] = {}
        self._open_stage_of: asyncio.Task[Any] | None = None
        self._random = random.Random()

    @property
    def task_id(self) -> str:
        return self._run.task_id

    @property
    def session_id(self) -> str:
        return self._run.session.id

    @property
    def values(self) -> dict[str, Any]:
        """The workflow's own part of the business state, as `set` and `append` left it."""
        return self._run.state.business_state.values

    # Activities

    def run(
        self,
        function: Callable[..., Any] | Activity,
        /,
        *args: Any,
        key: Any = None,
        effect: Effect | None = None,
        retry: Retry | int | None = None,
        timeout: str | float | None = None,
        verify: Callable[..., Any] | None = None,
        compensate: Callable[..., Any] | None = None,
        isolate: Literal["process"] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> calls.Call:
        """An activity: `function(*args, **kwargs)`, whose result is durable.  Await it, or hand it to `gather`.

        `key` tells calls of one function apart (needed when several are open at once); the other options override what
        `@activity` declared.  Raises IdentityError, NotSerialisable or UsageError at once, before anything runs.
        """
        known = self._activity(function, name, isolate)
        given = (key, effect, retry, timeout, verify, compensate, isolate, name)
        clash = [o for o, v in zip(_OPTIONS, given, strict=True) if v is not None and o in known.parameters]
        if clash:
            raise UsageError(
                f"{known.name} has a parameter of its own named {', '.join(clash)}",
                hint="bind it with functools.partial, or rename it",
            )
        if effect is not None and effect not in EFFECTS:
            raise UsageError(f"{known.name}: effect={effect!r} is not known", hint=f"one of {', '.join(EFFECTS)}")
        body = identity.arguments(known.name, args, kwargs)
        chosen: Effect = effect or known.effect or self._run.default_effect or "irreversible"
        plan_id = self._identify(known.name, key)
        plan = Plan(
            plan_id,
            known,
            args,
            kwargs,
            body,
            codec.digest(body),
            self._stage,
            None if key is None else str(key),
            chosen,
            default_retry(retry, known),
            known.timeout_s if timeout is None else seconds(timeout, f"timeout of {known.name}"),
            verify or known.verify,
            compensate or known.compensate,
        )
        return self._call(plan_id, known.name, functools.partial(self._perform, plan))

    async def gather(self, *awaitables: Awaitable[Any], limit: int | None = None) -> list[Any]:
        """The values of all, in order, at most `limit` (16) at a time.  When one fails the others under way finish first."""
        return await calls.gather(self._run, awaitables, limit)

    async def _perform(self, plan: Plan) -> Any:
        run = self._run
        recorded = run.state.business_state.results.get(plan.id)
        if recorded is not None:
            return self._recall(plan, recorded)
        active = run.state.execution_state.active_activities.get(plan.id)
        attempt = 1
        if active is not None:
            if active.digest != plan.digest:
                raise self._differs(plan, active.seq)
            run.check()
            attempt = active.attempt + 1
            if (plan.effect == "irreversible" or plan.retry.attempts > 1) and settle.at_rest(run, plan):
                attempt = active.attempt
            elif await settle.outcome(run, plan) == "recorded":
                return self._recall(plan, run.state.business_state.results[plan.id])
        try:
            value = await execute(run, plan, attempt=attempt)
        except ResultLost:
            self._can_undo(plan)
            raise
        self._can_undo(plan)
        return value

    def _recall(self, plan: Plan, recorded: Recorded) -> Any:
        """The recorded result of a finished activity, or its recorded error."""
        if recorded.digest and recorded.digest != plan.digest:
            raise self._differs(plan, recorded.seq)
        name = plan.activity.name
        if (
            recorded.source
            and plan.activity.source
            and recorded.source != plan.activity.source
            and name not in self._run.changed_sources
        ):
            self._run.changed_sources.add(name)
            self._run.emit(
                "AlarmRaised",
                payloads.AlarmRaised(
                    "source_changed",
                    f"{name} has changed since its result was recorded; the result is kept, resume --redo {name} runs it again",
                ),
            )
        if recorded.result_lost:
            self._can_undo(plan)
            raise ResultLost(name, "ResultLost", "its result was not kept", hint="it had its effect and will not run again")
        if not recorded.ok:
            raise self._recorded_error(recorded)
        self._can_undo(plan)
        return self._load(recorded)

    def _load(self, recorded: Recorded) -> Any:
        if not recorded.by_reference:
            return codec.loads(recorded.result, trust_pickle=True)
        event = self._run.session.event(recorded.seq)
        body = msgspec.json.decode(event.payload, type=payloads.ActivityCompleted)
        data = self._run.session.blobs.read(body.result_blob) if body.result_blob else bytes(memoryview(body.result))
        return codec.loads(data, trust_pickle=True)

    def _recorded_error(self, recorded: Recorded) -> ActivityError:
        body = msgspec.json.decode(self._run.session.event(recorded.seq).payload, type=payloads.ActivityFailed)
        if body.timed_out:
            return ActivityTimeout(body.name, body.error, still_running=body.still_running)
        return ActivityError(body.name, body.error_type, body.error)

    def _differs(self, plan: Plan, seq: int) -> IdentityError:
        """The error for changed arguments, with those of the start that the log holds before event `seq`."""
        before = None
        for event in self._run.session.events(self._run.state.system_state.queued_seq, seq):
            if event.event_type == "ActivityStarted" and event.activity_id == plan.id:
                body = msgspec.json.decode(event.payload, type=payloads.ActivityStarted)
                before = self._run.session.blobs.read(body.args_blob) if body.args_blob else bytes(memoryview(body.args))
        return identity.changed(plan.id, before, plan.arguments)

    def _can_undo(self, plan: Plan) -> None:
        if plan.compensate is not None:
            undo = plan.compensate
            self._run.compensators[plan.id] = lambda: undo(*plan.args, **plan.kwargs)

    def _activity(self, function: Any, name: str | None, isolate: Literal["process"] | None) -> Activity:
        found = self._activities.get((function, name, isolate))
        if found is None:
            if isinstance(function, Activity):
                found = function
                if name or isolate:
                    found = Activity(
                        function.function,
                        effect=function.effect,
                        retry=function.retry,
                        timeout=function.timeout_s,
                        verify=function.verify,
                        compensate=function.compensate,
                        isolate=isolate or function.isolate,
                        pickle=function.pickle,
                        name=name or function.name,
                    )
            elif callable(function):
                found = Activity(function, isolate=isolate, name=name)
            else:
                raise UsageError(
                    f"ctx.run needs a function, not {type(function).__name__}", hint="ctx.run(f, x), not ctx.run(f(x))"
                )
            self._activities[function, name, isolate] = found
        return found

    # Identity

    @property
    def _stage(self) -> str:
        return self._stages[-1] if self._stages else ""

    def _identify(self, name: str, key: Any) -> str:
        """The id of the next call of `name`; raises IdentityError when it is not unambiguous."""
        if current.get() is not None:
            raise UsageError(f"ctx was used inside an activity (for {name})", hint="only the workflow's body uses ctx")
        place = f"{self._stage or identity.MAIN}/{name}"
        if key is not None:
            made = f"{place}:{identity.key_text(name, key)}"
            if made in self._seen:
                raise IdentityError(
                    f"{made} exists already in this run", hint="give each call of one function a key of its own"
                )
        else:
            if self._open.get(place):
                raise IdentityError(
                    f"{name} is called while another call of it is open", hint="give it a key: ctx.run(f, x, key=x)"
                )
            if self._beside_others():
                raise IdentityError(
                    f"{name} is called without a key from one of several parallel coroutines",
                    hint="give it a key: which one comes first may differ next time",
                )
            number = self._occurrences[place] = self._occurrences.get(place, 0) + 1
            made = f"{place}#{number}"
        self._seen.add(made)
        return made

    def _beside_others(self) -> bool:
        """Whether the running code may be one of several coroutines side by side: of `gather`, or in a task of its own."""
        return calls.parallel.get() or asyncio.current_task() is not self._run.body

    def _call(self, made: str, name: str, perform: Callable[[], Awaitable[Any]]) -> calls.Call:
        place = f"{self._stage or identity.MAIN}/{name}"
        self._open.setdefault(place, set()).add(made)
        return calls.Call(made, name, perform, self._open[place].discard)

    def check_awaited(self, stage: str = "") -> None:
        """Raise UsageError when a call was made (in `stage`, if one is named) and never awaited: it did not run."""
        forgotten = sorted(
            made
            for place, made_here in self._open.items()
            for made in made_here
            if not stage or place.startswith((f"{stage}/", f"{stage}."))
        )
        if forgotten:
            raise UsageError(f"{forgotten[0]} was never awaited, so it did not run", hint="write: await ctx.run(...)")

    # Stages

    def stage(self, name: str) -> Stage:
        """`async with ctx.stage("name"):` a named part of the work, numbered in code order (1, 2, 2.1, ...).

        Its end takes a checkpoint with that number.  Stages follow one another; inside of one, work may be parallel.
        """
        if self._beside_others():
            raise IdentityError(
                f"stage {name!r} begins in one of several parallel coroutines", hint="stages follow one another"
            )
        return Stage(self, str(name))

    # Recorded values

    def now(self) -> dt.datetime:
        """The time in UTC, the same when the body runs again."""
        return dt.datetime.fromtimestamp(self._recorded("now", self._run.clock.now), dt.UTC)

    def random(self) -> float:
        """A number from 0 to 1, the same when the body runs again."""
        return float(self._recorded("random", self._random.random))

    def uuid(self) -> uuid.UUID:
        """A random UUID, the same when the body runs again."""
        return uuid.UUID(self._recorded("uuid", lambda: str(uuid.uuid4())))

    def _recorded(self, name: str, make: Callable[[], Any]) -> Any:
        made = self._identify(name, None)
        found = self._run.state.business_state.results.get(made)
        if found is not None:
            return codec.loads(found.result)
        self._run.check()
        value = make()
        self._run.emit(
            "ActivityCompleted", payloads.ActivityCompleted(name, "value", result=Raw(codec.dumps(value))), activity_id=made
        )
        return value

    # Events and state

    def emit(self, event_type: str, payload: dict[str, Any] | None = None, *, key: Any = None) -> None:
        """Log an event of the workflow's own, once: a resumed body does not log it again.

        Types of the documents (CodeGenerated, TestExecuted, FileWritten, ErrorOccurred) are folded into the state; other names in
        PascalCase are kept and shown.  Raises UsageError for the engine's own types and for a payload that does not fit its type.
        """
        if event_type in _OWN or event_type.startswith(("Task", "Activity", "Session")):
            raise UsageError(
                f"{event_type} is written by the engine only", hint="use a name of your own, in PascalCase past tense"
            )
        if not event_type.isidentifier() or not event_type[0].isupper():
            raise UsageError(f"{event_type!r} is not an event type", hint="PascalCase, past tense: ReportPublished")
        body = payload or {}
        schema = payloads.SCHEMAS.get(event_type)
        if schema is not None:
            try:
                msgspec.convert(body, schema)
            except msgspec.ValidationError as error:
                raise UsageError(
                    f"{event_type}: {error}", hint=f"its fields are {', '.join(schema.__struct_fields__)}"
                ) from error
        self._log_once(f"emit:{event_type}", key, event_type, body, ignorable=event_type not in ev.TYPES)

    def goal(self, text: str) -> None:
        """Say what the work is after: business_state.current_goal."""
        self._log_once("goal", None, "StateChanged", payloads.StateChanged("current_goal", Raw(codec.dumps(text))))

    def set(self, path: str, value: Any, *, key: Any = None) -> None:
        """Set a value of the business state; `path` may be dotted."""
        self._log_once(f"set:{path}", key, "StateChanged", payloads.StateChanged(path, Raw(codec.dumps(value))))

    def append(self, path: str, value: Any, *, key: Any = None) -> None:
        """Append to a list of the business state; only the new item is written."""
        self._log_once(f"append:{path}", key, "StateChanged", payloads.StateChanged(path, Raw(codec.dumps(value)), "append"))

    def wrote(self, path: str | os.PathLike[str]) -> None:
        """Note a file as an artefact: its path, sha256 and size; the bytes stay where they are."""
        text = os.fspath(path)
        if self._is_recorded("emit:FileWritten", text):
            self._identify("emit:FileWritten", text)
            return
        data = Path(text).read_bytes()
        self.emit(
            "FileWritten",
            {"path": text, "checksum": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)},
            key=text,
        )

    def expect(self, total: int | None, text: str = "") -> None:
        """Say how many activities there will be, so that progress and the rest can be told (None: unknown)."""
        self._log_once("expect", None, "ActivityProgressed", payloads.ActivityProgressed(0, total, text), on_task=True)

    def _is_recorded(self, name: str, key: Any) -> bool:
        return (
            f"{self._stage or identity.MAIN}/{name}:{identity.key_text(name, key)}" in self._run.state.business_state.results
        )

    def _log_once(
        self, name: str, key: Any, event_type: str, body: Any, *, ignorable: bool = False, on_task: bool = False
    ) -> None:
        made = self._identify(name, key)
        if made in self._run.state.business_state.results:
            return
        self._run.check()
        if on_task:
            if self._run.state.execution_state.total != body.total:
                self._run.emit(event_type, body)
            return
        self._run.emit(event_type, body, activity_id=made, ignorable=ignorable)

    # Waiting

    def sleep(self, duration: str | float, *, key: Any = None) -> calls.Call:
        """Wait (seconds, or "90s", "2h", "1d") by the wall clock.  A restart waits only for what is left."""
        length = seconds(duration, "sleep")
        made = self._identify("sleep", key)
        return self._call(made, "sleep", functools.partial(self._sleep, made, length))

    async def _sleep(self, made: str, length: float) -> None:
        run = self._run
        if made in run.state.business_state.results:
            return
        active = run.state.execution_state.active_activities.get(made)
        run.check()
        run.works_again()
        if active is None:
            until = run.clock.now() + length
            run.emit(
                "ActivityStarted",
                payloads.ActivityStarted("sleep", "sleep", stage=self._stage, until=ev.Stamper()(until)),
                activity_id=made,
            )
            run.acknowledge()
        else:
            until = ev.seconds_of(active.until or active.since)
        run.executing[made] = "sleep"
        try:
            while (left := until - run.clock.now()) > 0:
                await run.rest(left)
        finally:
            del run.executing[made]
            if run.answers:
                run.waits()
        run.emit("ActivityCompleted", payloads.ActivityCompleted("sleep", "sleep"), activity_id=made)
        run.acknowledge()

    def approve(
        self, question: str, *, details: Any = None, key: Any = None, expires: str | float | None = None
    ) -> calls.Call:
        """Ask a person; gives an `Answer`, true when approved.

        The request is durable, is answered once, from any door, and is bound to question and details.  With `expires` it is denied
        when nobody has answered by then; without it waits.
        """
        made = self._identify("approve", key)
        packed = Raw(codec.dumps(details))
        question = ev.clean(question)[0]
        length = None if expires is None else seconds(expires, "expires")
        return self._call(made, "approve", functools.partial(self._approve, made, question, packed, length))

    async def _approve(self, made: str, question: str, details: Raw, length: float | None) -> Answer:
        run = self._run
        approval_id = run.approvals.get(made)
        if approval_id is None:
            run.check()
            expires_at = None if length is None else ev.Stamper()(run.clock.now() + length)
            ignored = "waits for an answer" if expires_at is None else f"denied at {expires_at}"
            approval_id = run.approvals[made] = settle.request(
                run, question, details, activity_id=made, expires_at=expires_at, if_ignored=ignored
            )
        asked = run.state.execution_state.approvals[approval_id]
        if asked.digest != settle.digest_of(question, details, []):
            raise IdentityError(
                f"{made} was asked with another question or other details: {asked.question!r}",
                hint="undo the change, or give the new question another key",
            )
        await settle.wait_for_answer(run, approval_id)
        asked = run.state.execution_state.approvals[approval_id]
        return Answer(asked.answer == "approved", asked.choice, asked.reason, asked.by)


class Stage:
    """See `Context.stage`."""

    def __init__(self, ctx: Context, name: str) -> None:
        self._ctx = ctx
        self.name = name
        self.id = ""

    async def __aenter__(self) -> Self:
        ctx, run = self._ctx, self._ctx._run
        if ctx._open_stage_of is not None and ctx._open_stage_of is not asyncio.current_task():
            raise IdentityError(f"stage {self.name!r} begins beside another one", hint="stages follow one another")
        parent = ctx._stage
        number = ctx._children[parent] = ctx._children.get(parent, 0) + 1
        self.id = f"{parent}.{number}" if parent else str(number)
        known = run.state.execution_state.stages.get(self.id)
        if known is not None and known.name != self.name:
            raise IdentityError(
                f"stage {self.id} was recorded as {known.name!r} and is now {self.name!r}",
                hint="undo the change, or start a new task with --new",
            )
        if known is None:
            run.check()
            run.emit("ActivityStarted", payloads.ActivityStarted(self.name, "stage", stage=parent), activity_id=self.id)
        ctx._stages.append(self.id)
        ctx._open_stage_of = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ctx, run = self._ctx, self._ctx._run
        ctx._stages.pop()
        if not ctx._stages:
            ctx._open_stage_of = None
        if error is not None or run.state.execution_state.stages[self.id].done:
            return
        ctx.check_awaited(self.id)
        run.emit("ActivityCompleted", payloads.ActivityCompleted(self.name, "stage"), activity_id=self.id)
        run.checkpoint("stage", self.id)
        run.acknowledge()
