"""`ctx`: what the body of a workflow may call.

On resume the body runs again from its top, and whatever is recorded is returned at once.  So effects belong into
activities, and everything here that could differ from one run to the next (time, chance, answers, activities) has an
identity and is recorded."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib
import os
import random
import types
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw

from ipyagent_sessions import codec, payloads
from ipyagent_sessions import events as ev
from ipyagent_sessions.config import seconds
from ipyagent_sessions.errors import IdentityError, UsageError
from ipyagent_sessions.run import calls, identity, large, waiting
from ipyagent_sessions.run.checked import ATTEMPTS, Checked, Work, as_patterns
from ipyagent_sessions.run.definitions import (
    ONCE,
    OPTIONS,
    Activity,
    Effect,
    Inner,
    Retry,
    check_callable,
    check_effect,
    is_whole,
)
from ipyagent_sessions.run.execute import default_retry
from ipyagent_sessions.run.naming import Names
from ipyagent_sessions.run.perform import perform
from ipyagent_sessions.run.plan import Plan
from ipyagent_sessions.run.shared import Shared
from ipyagent_sessions.run.stages import Stage
from ipyagent_sessions.run.task import TaskRun

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
        "AlarmRaised",
        "EffectDeclared",
        "FileRolledBack",
        "CheckFailed",
        "ConfigChanged",
    }
)


class Context:
    """The first argument of a workflow."""

    def __init__(self, run: TaskRun) -> None:
        self._run = run
        self._names = Names(run)
        self._activities: dict[Any, Activity] = {}
        self._written: dict[str, int] = {}
        self._random = random.Random()
        self._large = large.Values(run.session.blobs)

    @property
    def task_id(self) -> str:
        return self._run.task_id

    @property
    def session_id(self) -> str:
        return self._run.session.id

    @functools.cached_property
    def folder(self) -> Path:
        """Where the task's files are: the working folder, or the own workspace of a fork that was made with `--isolate`."""
        return self._run.session.workspace or Path.cwd()

    @property
    def values(self) -> dict[str, Any]:
        """The workflow's own part of the business state, as `set` and `append` left it."""
        business = self._run.state.business_state
        return self._large.filled(business.values) if business.large else business.values

    @property
    def instruction(self) -> str:
        """What a person said when the task was resumed (`--say`) or forked (`--direction`); empty when nothing."""
        return self._run.state.system_state.instruction

    @property
    def task(self) -> TaskRun:
        """The execution this body belongs to, for the engine's own workflows."""
        return self._run

    @functools.cached_property
    def store(self) -> Shared:
        """What sessions share: `await ctx.store.get("facts", "pi")`, `put`, `delete`, `search`."""
        return Shared(self.run, self._run.session.place.memory)

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
        if known.ambiguous:
            given = (key, effect, retry, timeout, verify, compensate, isolate, name)
            _refuse_clash(known, [o for o, v in zip(OPTIONS, given, strict=True) if v is not None])
        check_effect(known.name, effect)
        check_callable(known.name, verify=verify, compensate=compensate)
        body = identity.arguments(known.name, args, kwargs)
        chosen: Effect = effect or known.effect or self._run.default_effect or "irreversible"
        plan_id = self._names.identify(known.name, key)
        plan = Plan(
            plan_id,
            known,
            args,
            kwargs,
            body,
            codec.digest(body),
            self._names.stage,
            None if key is None else str(key),
            chosen,
            default_retry(retry, known),
            known.timeout_s if timeout is None else seconds(timeout, f"timeout of {known.name}"),
            verify or known.verify,
            compensate or known.compensate,
        )
        return self._call(plan_id, known.name, functools.partial(perform, self._run, plan))

    async def gather(self, *awaitables: Awaitable[Any], limit: int | None = None) -> list[Any]:
        """The values of all, in order, at most `limit` (16) at a time.  When one fails the others under way finish first."""
        return await calls.gather(self._run, awaitables, limit)

    def perform(
        self,
        name: str,
        work: Callable[[], Awaitable[Any]],
        *,
        kind: str,
        key: str,
        arguments: dict[str, Any],
        effect: Effect,
        retry: Retry | None = None,
        timeout_s: float | None = None,
        verify: Callable[..., Any] | None = None,
    ) -> calls.Call:
        """An activity of the engine's own, such as a model request or a tool call, whose work is a closure.

        What is recorded as its arguments, and compared when it is recalled, is `arguments`.  `kind` is what
        `activities.kind` says.
        """
        activity = Inner(work, name=name)
        body = identity.arguments(name, (), arguments)
        made = self._names.identify(name, key)
        plan = Plan(
            made,
            activity,
            (),
            {},
            body,
            codec.digest(body),
            self._names.stage,
            key,
            effect,
            retry or ONCE,
            timeout_s,
            verify,
            None,
            kind,
        )
        return self._call(made, name, functools.partial(perform, self._run, plan))

    def approve_tool(
        self, tool: str, arguments: dict[str, Any], *, key: str, effect: Effect, expires_s: float | None
    ) -> calls.Call:
        """Ask a person whether a tool may be called with these arguments; gives an `Answer`."""
        made = self._names.identify("approve", f"{tool} {key}")
        packed = Raw(codec.dumps({"tool": tool, "arguments": arguments, "effect": effect}))
        question = f"May {tool} be called?"
        ask = functools.partial(
            waiting.approve, self._run, made, question, packed, expires_s, kind="tool", tool=tool, effect=effect
        )
        return self._call(made, "approve", ask)

    def id_of(self, name: str, key: Any) -> str:
        """The id that an activity of the engine's own has here."""
        return f"{self._names.place(name)}:{identity.key_text(name, key)}"

    def _activity(self, function: Any, name: str | None, isolate: Literal["process"] | None) -> Activity:
        found = self._activities.get((function, name, isolate))
        if found is None:
            if isinstance(function, Activity):
                found = function
                if (name and name != function.name) or isolate:
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
            if _is_kept(function):
                self._activities[function, name, isolate] = found
        return found

    def _call(self, made: str, name: str, perform: Callable[[], Awaitable[Any]]) -> calls.Call:
        return calls.Call(made, name, perform, self._names.open(made, name))

    def check_awaited(self) -> None:
        """Raise UsageError when a call was made and never awaited: it did not run."""
        self._names.check_awaited()

    # Stages

    def stage(self, name: str) -> Stage:
        """`async with ctx.stage("name"):` a named part of the work, numbered in code order (1, 2, 2.1, ...).

        Its end takes a checkpoint with that number.  Stages follow one another; inside of one, work may be parallel.
        """
        if self._names.beside_others():
            raise IdentityError(
                f"stage {name!r} begins in one of several parallel coroutines", hint="stages follow one another"
            )
        return Stage(self._run, self._names, str(name))

    async def checked(
        self,
        name: str,
        part: Callable[..., Awaitable[Any]],
        /,
        *args: Any,
        check: Callable[..., Any] | Activity,
        files: str | Sequence[str] = (),
        attempts: int = ATTEMPTS,
    ) -> Any:
        """`part(*args, failure=...)`, an async function of the body, until its check says that it is good; gives its value.

        `check(value)` is an activity: None and True are good; False, a text and an exception are the failure.  Then declared
        compensations of the part's activities run, the files below `ctx.folder` that match `files` go back to what they held,
        and so does the business state; `part` is called again, with the failure as text.  `failure` is None the first time.
        Files that somebody else may have changed are not touched: a person is asked.

        A stage named `name`, with a checkpoint at its start; each attempt is a stage in it.  Raises CheckFailed after
        `attempts` of them, UsageError when the files are too many or too large to be noted.
        """
        if self._names.beside_others():
            raise IdentityError(
                f"section {name!r} begins in one of several parallel coroutines", hint="sections follow one another"
            )
        activity = self._activity(check, "check", None)
        work = Work(str(name), part, args, activity, as_patterns(files), attempts)
        return await Checked(self._run, self._names, self.folder, self.run).section(work)

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
        made = self._names.identify(name, None)
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

        Types of the documents (CodeGenerated, TestExecuted, FileWritten, ErrorOccurred) are folded into the state; other
        names in PascalCase are kept and shown.  Raises UsageError for the engine's own types and for a payload that does
        not fit its type."""
        if not isinstance(event_type, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without a type checker
            raise UsageError(f"the type of an event is a text, not {type(event_type).__name__}", hint="ReportPublished")
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
        blobs: dict[str, bytes] = {}
        body = large.payload(event_type, body, blobs)
        self._log_once(f"emit:{event_type}", key, event_type, body, blobs=blobs, ignorable=event_type not in ev.TYPES)

    def goal(self, text: str) -> None:
        """Say what the work is after: business_state.current_goal."""
        self._log_once("goal", None, "StateChanged", large.change(self._run.appender, "current_goal", text, "set", {}))

    def set(self, path: str, value: Any, *, key: Any = None) -> None:
        """Set a value of the business state; `path` may be dotted."""
        self._change(path, value, "set", key)

    def append(self, path: str, value: Any, *, key: Any = None) -> None:
        """Append to a list of the business state; only the new item is written.  Raises UsageError when there is no list."""
        here: Any = self._run.state.business_state.values
        for part in path.split("."):
            here = here.get(part) if isinstance(here, dict) else None
        if here is not None and not isinstance(here, list):
            raise UsageError(f"{path} is a {type(here).__name__}, not a list", hint="append to another path, or set it")
        self._change(path, value, "append", key)

    def _change(self, path: str, value: Any, op: str, key: Any) -> None:
        blobs: dict[str, bytes] = {}
        body = large.change(self._run.appender, path, value, op, blobs)
        self._large.keep(blobs)
        self._log_once(f"{op}:{path}", key, "StateChanged", body, blobs=blobs)
        self._large.forget(self._run.state.business_state.values)

    def wrote(self, path: str | os.PathLike[str]) -> None:
        """Note a file as an artefact: its path from `ctx.folder`, sha256 and size; the bytes stay where they are."""
        text = self._path_of(path)
        place = f"{self._names.stage}/{text}"
        number = self._written[place] = self._written.get(place, 0) + 1
        key = text if number == 1 else f"{text} ({number})"
        if self._is_recorded("emit:FileWritten", key):
            self._names.identify("emit:FileWritten", key)
            return
        with open(self.folder / text, "rb") as file:
            checksum, size = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}", file.tell()
        self.emit("FileWritten", {"path": text, "checksum": checksum, "size": size}, key=key)

    def _path_of(self, path: str | os.PathLike[str]) -> str:
        """A path as it is logged: without the folder, which is another one in an isolated fork."""
        text = os.fspath(path)
        with contextlib.suppress(ValueError):
            if os.path.isabs(text):
                return os.fspath(Path(text).relative_to(self.folder))
        return text

    def expect(self, total: int | None, text: str = "") -> None:
        """Say how many activities there will be, so that progress and the rest can be told (None: unknown)."""
        if total is not None and not is_whole(total, 0):
            raise UsageError(f"expect({total!r}) is no number of activities", hint="a whole number from 0, or None")
        self._log_once("expect", None, "ActivityProgressed", payloads.ActivityProgressed(0, total, text), on_task=True)

    def _is_recorded(self, name: str, key: Any) -> bool:
        return self.id_of(name, key) in self._run.state.business_state.results

    def _log_once(
        self,
        name: str,
        key: Any,
        event_type: str,
        body: Any,
        *,
        blobs: dict[str, bytes] | None = None,
        ignorable: bool = False,
        on_task: bool = False,
    ) -> None:
        made = self._names.identify(name, key)
        if made in self._run.state.business_state.results:
            return
        self._run.check()
        if on_task:
            if self._run.state.execution_state.total != body.total:
                self._run.emit(event_type, body)
            return
        self._run.emit(event_type, body, activity_id=made, ignorable=ignorable, blobs=blobs or None)

    # Waiting

    def sleep(self, duration: str | float, *, key: Any = None) -> calls.Call:
        """Wait (seconds, or "90s", "2h", "1d") by the wall clock.  A restart waits only for what is left."""
        length = seconds(duration, "sleep")
        made = self._names.identify("sleep", key)
        return self._call(made, "sleep", functools.partial(waiting.sleep, self._run, made, self._names.stage, length))

    def approve(
        self, question: str, *, details: Any = None, key: Any = None, expires: str | float | None = None
    ) -> calls.Call:
        """Ask a person; gives an `Answer`, true when approved.

        The request is durable, is answered once, from any door, and is bound to question and details.  With `expires` it
        is denied when nobody has answered by then; without it waits."""
        if not isinstance(question, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without a type checker
            raise UsageError(f"approve asks with a text, not {type(question).__name__}", hint='ctx.approve("Delete it?")')
        made = self._names.identify("approve", key)
        packed = Raw(codec.dumps(details))
        question = ev.clean(question)[0]
        length = None if expires is None else seconds(expires, "expires")
        return self._call(made, "approve", functools.partial(waiting.approve, self._run, made, question, packed, length))


def _is_kept(function: Any) -> bool:
    """Whether it is there for as long as the workflow: not made for one call, as a partial, a bound method or a lambda may be,
    with all that it holds."""
    if isinstance(function, types.FunctionType):
        return "<" not in function.__qualname__
    return isinstance(function, Activity) or isinstance(getattr(function, "__self__", None), types.ModuleType)


def _refuse_clash(known: Activity, given: list[str]) -> None:
    """Raise UsageError when an option that was given is also a parameter of the function: who is meant is not clear."""
    clash = [option for option in given if option in known.parameters]
    if clash:
        raise UsageError(
            f"{known.name} has a parameter of its own named {', '.join(clash)}",
            hint="bind it with functools.partial, or rename it",
        )
