"""A part of the work that counts once its check says so; else it is rolled back and tried again (R132, decision 14).

Each attempt is a stage of its own, so that nothing which one has recorded is given to the next.  When its check fails,
declared compensations run in reverse order and files go back to what they held; one event, which follows all of that, puts the
business state back.  A crash before it finds the attempt as it stands in the log and does the rest; after it the attempt is
never entered again."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Raw

from ipyagent_sessions import codec
from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import ActivityError, CheckFailed, UsageError
from ipyagent_sessions.log.blobs import Blobs
from ipyagent_sessions.run import notes, recall, settle, undoing
from ipyagent_sessions.run.calls import Call
from ipyagent_sessions.run.definitions import Activity
from ipyagent_sessions.run.naming import Names, is_within
from ipyagent_sessions.run.stages import Stage
from ipyagent_sessions.run.task import TaskRun
from ipyagent_sessions.state import BusinessState, Section
from ipyagent_sessions.textsafe import plain
from ipyagent_sessions.undo import files
from ipyagent_sessions.undo.ledger import Effect, ledger
from ipyagent_sessions.workspace.protected import permissions
from ipyagent_sessions.workspace.workspace import Workspace

ATTEMPTS: Final = 3
"""How often a section is tried unless somebody says."""
LONGEST: Final = 4_000
"""Characters of a failure that are kept: its end, where the outputs of tests say what is wrong."""
_TOLD: Final = 200
"""Characters of it that stand in a sentence."""
_TOOL: Final = "checked section"


class Work(NamedTuple):
    """What a checked section does; see `Context.checked`."""

    name: str
    part: Callable[..., Awaitable[Any]]
    args: tuple[Any, ...]
    check: Activity
    patterns: tuple[str, ...]
    attempts: int


class _RolledBack(Exception):
    """An attempt has failed its check, and what it did is undone."""


class Checked:
    """The checked sections of one run of a body.  `call` is `Context.run`."""

    def __init__(self, run: TaskRun, names: Names, folder: Path, call: Callable[..., Call]) -> None:
        self._run = run
        self._names = names
        self._call = call
        self._workspace = Workspace(folder, permissions(run.session.place.root, folder))

    async def section(self, work: Work) -> Any:
        """What the part returned in the attempt that passed.  Raises CheckFailed after the last one."""
        _look_at(work)
        run = self._run
        async with Stage(run, self._names, work.name, checked=True) as whole:
            section = run.state.execution_state.sections[whole.id]
            if not section.checkpoint:
                run.checkpoint("checked", f"before {work.name}")
            self._names.skip(len(section.failures))
            while len(section.failures) < work.attempts:
                with contextlib.suppress(_RolledBack):
                    number = len(section.failures) + 1
                    async with Stage(run, self._names, f"{work.name}, attempt {number}") as attempt:
                        return await self._attempt(work, section, attempt.id)
            raise CheckFailed(
                f"{work.name}: the check failed {_times(len(section.failures))}, at last: {_brief(section.failures[-1])}",
                checkpoint=section.checkpoint,
                hint=_way_on(run, section),
            )

    async def _attempt(self, work: Work, section: Section, stage: str) -> Any:
        before = await self._before(work.patterns)
        value = await work.part(*work.args, failure=section.failures[-1] if section.failures else None)
        unsure = await self._after(work.patterns, before, section.since)
        why = await self._failure(work, value)
        if why is None:
            return value
        await self._roll_back(work, section, stage, why, unsure)
        raise _RolledBack

    async def _failure(self, work: Work, value: Any) -> str | None:
        """Why the check says that `value`, or what was done for it, is not good; None when it is."""
        try:
            said = await self._call(work.check, value, effect=work.check.effect or "none")
        except ActivityError as error:
            said = f"{error.error_type}: {error.error}" if error.error else error.error_type
        if said is None:
            return None
        if type(said).__name__ in ("bool", "bool_"):  # NumPy's too
            return None if said else "the check said no"
        if isinstance(said, str) and said.strip():
            text = ev.clean(said.strip())[0]
            return text if len(text) <= LONGEST else f"... {text[-LONGEST:]}"
        raise UsageError(f"the check of {work.name} answered {plain(repr(said), 80)}", hint="None or True, False, or a text")

    # Files

    async def _before(self, patterns: tuple[str, ...]) -> dict[str, Any]:
        return await self._noted("before", lambda: notes.note(self._workspace, patterns)) if patterns else {}

    async def _after(self, patterns: tuple[str, ...], before: dict[str, Any], since: int) -> list[str]:
        """Log the files that the attempt changed, each once; gives those of which that is not certain.

        Where the task was stopped in between, a person may have changed them: then only what `ctx.wrote` vouches for counts.
        """
        if not patterns:
            return []
        held = before["files"]
        after = await self._noted("after", lambda: notes.changed(held, notes.note(self._workspace, patterns)))
        unsure: list[str] = []
        for path, now in after["files"].items():
            known = self._run.state.business_state.files.get(path, {})
            vouched = known.get("seq", 0) > since and known.get("checksum") == files.checksum(now)
            if vouched or after["attempt"] == before["attempt"]:
                self._tell(path, held.get(path), now)
            else:
                unsure.append(path)
        return unsure

    async def _noted(self, when: str, look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `look` finds, recorded, with the number of the execution that looked.  Raises UsageError, nothing recorded."""
        run = self._run
        made = self._names.identify("note", when)
        recorded = run.state.business_state.results.get(made)
        if recorded is not None:
            return dict(recall.value_of(run, recorded))
        run.check()
        found = {"attempt": run.state.system_state.attempt, "files": (await run.threads.submit(look)).value}
        blobs: dict[str, bytes] = {}
        result, blob = run.appender.put(codec.dumps(found), blobs)
        body = p.ActivityCompleted("note", "note", result=result, result_blob=blob)
        run.emit("ActivityCompleted", body, activity_id=made, blobs=blobs or None)
        run.acknowledge()
        return found

    def _tell(self, path: str, was: bytes | None, now: bytes | None) -> None:
        made = self._names.identify("file", path)
        if made in self._run.state.business_state.results:
            return
        kept = {Blobs.name(data): data for data in (was, now) if data is not None}
        body = p.FileWritten(
            path,
            files.checksum(now),
            None if now is None else len(now),
            before=None if was is None else Blobs.name(was),
            before_checksum=files.checksum(was),
            tool=_TOOL,
            after=None if now is None else Blobs.name(now),
        )
        self._run.emit("FileWritten", body, activity_id=made, blobs=kept)

    # Rolling back

    async def _roll_back(self, work: Work, section: Section, stage: str, why: str, unsure: list[str]) -> None:
        """Undo what the attempt did, and log that.  Raises CheckFailed when a person does not let stay what cannot be undone,
        TaskStop when the task is asked to stop."""
        run = self._run
        run.before_effect()
        asked = self._names.identify("approve", "roll back")
        if asked not in run.approvals:  # else all that could be undone without a person was
            await self._undo(work, section, stage, unsure, asked)
        if asked in run.approvals and not await self._may_stay(run.approvals[asked]):
            told = f"{work.name}: the check failed, and nothing was rolled back, as somebody wished: {_brief(why)}"
            raise CheckFailed(told, checkpoint=section.checkpoint, hint=_way_on(run, section))
        for step in self._plan(section):
            if step.how != "refused":
                files.bring_back(run.session, self._workspace, step, run.appender)
        run.before_effect()
        for activity_id in [i for i in run.compensators if is_within(i, stage)]:
            del run.compensators[activity_id]
        run.emit("CheckFailed", self._told(work, section, stage, why, unsure), activity_id=stage)
        run.before_effect()

    async def _undo(self, work: Work, section: Section, stage: str, unsure: list[str], asked: str) -> None:
        """Run the compensations; ask a person (under the id `asked`) when something cannot be undone."""
        run = self._run
        _, broken = await _uncut(run, undoing.compensate(run, f"{work.name} failed its check", stage=stage))
        in_the_way = [f"{step.path}: {step.why}" for step in self._plan(section) if step.how == "refused"]
        in_the_way += [f"{path}: changed, perhaps by somebody else while the task was stopped" for path in unsure]
        in_the_way += [f"undoing {activity_id} failed" for activity_id in broken]
        if in_the_way:
            number = len(section.failures) + 1
            question = f"{work.name} failed its check in attempt {number}. May these stay as they are, and the rest go back?"
            run.approvals[asked] = settle.request(run, question, Raw(codec.dumps(in_the_way)), activity_id=asked)

    async def _may_stay(self, approval_id: str) -> bool:
        await settle.wait_for_answer(self._run, approval_id)
        return self._run.state.execution_state.approvals[approval_id].answer == "approved"

    def _plan(self, section: Section) -> list[files.Step]:
        return files.plan(self._run.session, self._workspace, self._effects(), self._since(section))

    def _effects(self) -> list[Effect]:
        return ledger(self._run.session.events())

    def _since(self, section: Section) -> int:
        """The event after which a write is the attempt's own; what a fork has inherited is its parent's."""
        return max(section.since, self._run.session.first - 1)

    def _told(self, work: Work, section: Section, stage: str, why: str, unsure: list[str]) -> p.CheckFailed:
        number, since = len(section.failures) + 1, self._since(section)
        wrote = [e for e in self._effects() if e.what == "file" and e.restorable and e.seq > since]
        back = sorted({e.name for e in wrote if e.state == "rolled back"})
        kept = sorted({e.name for e in wrote if e.state != "rolled back"} | {*unsure})
        results = {i: r for i, r in self._run.state.business_state.results.items() if is_within(i, stage)}
        stays = [i for i, r in results.items() if r.effect == "irreversible" and not r.compensated]
        said = f"{work.name}: the check failed in attempt {number} of {work.attempts}: {_brief(why)}"
        said += _back(len(back), _values_differ(self._run.state.business_state, section), section.checkpoint)
        said += f"; left as they are: {', '.join(kept)}" if kept else ""
        said += f"; not undone: {', '.join(stays)}" if stays else ""
        undone = [i for i, r in results.items() if r.compensated]
        return p.CheckFailed(work.name, number, work.attempts, why, said, section.checkpoint, back, kept, undone, stays)


def _look_at(work: Work) -> None:
    """Raise UsageError for a section that cannot be: before anything of it runs."""
    if work.attempts < 1:
        raise UsageError(f"{work.name}: attempts={work.attempts} lets nothing run", hint="a whole number from 1")
    if not inspect.iscoroutinefunction(work.part):
        raise UsageError(f"{work.name}: the part is not an async function", hint="async def part(..., failure)")
    try:
        inspect.signature(work.part).bind(*work.args, failure=None)
    except TypeError as error:
        hint = "it is called with the arguments given, and failure=None or the text of why the last attempt failed"
        raise UsageError(f"{work.name}: the part cannot be called so: {error}", hint=hint) from error


async def _uncut(run: TaskRun, work: Coroutine[Any, Any, Any]) -> Any:
    """The value of `work`, which nothing cuts short: an undo that has begun ends.

    After it a stop of the task counts, and so does a cancellation by the body itself, as of a timeout around the section.
    """
    task = run.loop.create_task(work)
    cut: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as cancelled:
            cut = cancelled
    value = task.result()
    run.check()
    if cut is not None:
        raise cut
    return value


def _brief(why: str) -> str:
    text = " ".join(why.split())
    return plain(text if len(text) <= _TOLD else f"... {text[-_TOLD:]}")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _way_on(run: TaskRun, section: Section) -> str:
    return f"go on from the last good checkpoint: ipyagent fork {run.session.id} --at {section.checkpoint}"


def _values_differ(business: BusinessState, section: Section) -> bool:
    return (business.values, business.current_goal) != (section.values, section.current_goal)


def _back(count: int, values: bool, checkpoint: int) -> str:
    """What goes back, as the rest of a sentence; nothing when nothing does."""
    things = ([f"{count} file{'s' if count > 1 else ''}"] if count else []) + (["the values"] if values else [])
    if not things:
        return ""
    one = count == 1 and not values
    return f"; {' and '.join(things)} {'is as it was' if one else 'are as they were'} at event {checkpoint}"


def as_patterns(given: str | Sequence[str]) -> tuple[str, ...]:
    """Patterns of files, of which a single one may be given as it is."""
    return (given,) if isinstance(given, str) else tuple(given)
