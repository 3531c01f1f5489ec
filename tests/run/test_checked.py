"""A failing check rolls files and values back to the section's start and tries again with the failure as input (R132)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.run.harness import PATIENCE, Engine, Gate, Witness, answer, bodies, checkpoints, of_type, refolded, until_asked

from ipyagent_sessions.errors import CheckFailed, TaskNotCompleted
from ipyagent_sessions.run import notes
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import FaultyDisk
from ipyagent_sessions.undo.ledger import ledger
from ipyagent_sessions.verify import whole
from ipyagent_sessions.views.story import line_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


class World:
    """A section whose attempts 1, 2, ... change files and values; its check passes from attempt `good` on."""

    def __init__(self, folder: Path, witness: Witness, *, good: int = 2, attempts: int = 3) -> None:
        self.folder, self.witness, self.good, self.attempts = folder, witness, good, attempts
        self.failures: list[str | None] = []
        self.before_check: Callable[[int], object] = lambda number: None
        self.in_part: Callable[[int], Any] | None = None
        (folder / "src").mkdir()
        (folder / "src/a.py").write_text("a 0")
        (folder / "src/gone.py").write_text("here")
        (folder / "other.txt").write_text("other 0")

    def write(self, number: int) -> int:
        self.witness(f"write {number}")
        (self.folder / "src/a.py").write_text(f"a {number}")
        (self.folder / "src/deep").mkdir(exist_ok=True)
        (self.folder / "src/deep/new.py").write_text(f"new {number}")
        (self.folder / "src/gone.py").unlink(missing_ok=True)
        (self.folder / "other.txt").write_text(f"other {number}")
        return number

    def check(self, number: int) -> str | None:
        self.witness(f"check {number}")
        self.before_check(number)
        return None if number >= self.good else f"attempt {number} is not good"

    @property
    def flow(self) -> Workflow:
        @workflow(default_effect="none")
        async def flow(ctx: Context) -> Any:
            ctx.goal("before")
            ctx.set("tries", ["start"])
            ctx.set("deep.kept", 1)

            async def part(failure: str | None) -> int:
                self.failures.append(failure)
                number = 1 if failure is None else int(failure.split()[1]) + 1
                ctx.goal(f"attempt {number}")
                ctx.append("tries", number)
                ctx.set("deep.made", number)
                async with ctx.stage("inner"):
                    done = await ctx.run(self.write, number)
                if self.in_part is not None:
                    await ctx.run(self.in_part, number, name="in_part")
                return int(done)

            value = await ctx.checked("good", part, check=self.check, files=["src/**/*.py"], attempts=self.attempts)
            ctx.emit("Published", {"value": value})
            return value

        return flow

    def held(self) -> dict[str, str]:
        return {str(p.relative_to(self.folder)): p.read_text() for p in self.folder.rglob("*") if p.is_file()}


AS_AT_THE_START = {"src/a.py": "a 0", "src/gone.py": "here"}
VALUES = {"tries": ["start"], "deep": {"kept": 1}}


def sound(session: Session) -> None:
    assert session.state() == refolded(session)
    assert not whole.session(session).damaged
    assert not [f for f in whole.session(session).findings if "no event names it" in f.what]


def test_a_failing_check_rolls_back_and_the_next_attempt_gets_the_failure(
    engine: Engine, folder: Path, witness: Witness
) -> None:
    world = World(folder, witness)
    seen: list[dict[str, str]] = []
    world.in_part = lambda number: seen.append(world.held()) if number == 1 else None
    session = engine.ended(engine.start(world.flow), "completed")
    assert world.failures == [None, "attempt 1 is not good"]
    assert witness.order == ["write 1", "check 1", "write 2", "check 2"], "nothing of attempt 1 was given to attempt 2"
    assert seen[0]["src/a.py"] == "a 1"
    assert world.held() == {"src/a.py": "a 2", "src/deep/new.py": "new 2", "other.txt": "other 2"}
    (failed,) = bodies(session, "CheckFailed")
    assert (failed["name"], failed["attempt"], failed["attempts"]) == ("good", 1, 3)
    assert failed["files"] == ["src/a.py", "src/deep/new.py", "src/gone.py"]
    assert failed["sentence"].startswith("good: the check failed in attempt 1 of 3: attempt 1 is not good; 3 files and the ")
    state = session.state()
    assert state.business_state.values == {"tries": ["start", 2], "deep": {"kept": 1, "made": 2}}
    assert state.business_state.current_goal == "attempt 2"
    assert state.business_state.completed_subtasks == ["1.2.1 inner", "1.2 good, attempt 2", "1 good"]
    assert state.alarms == [f"check: {failed['sentence']}"]
    sound(session)


def test_the_state_at_each_event_is_what_it_was_there(engine: Engine, folder: Path, witness: Witness) -> None:
    session = engine.ended(engine.start(World(folder, witness).flow), "completed")
    (failed,) = of_type(session, "CheckFailed")
    before, after = session.state(failed.seq - 1).business_state, session.state(failed.seq).business_state
    assert before.values == {"tries": ["start", 1], "deep": {"kept": 1, "made": 1}}
    assert (before.current_goal, before.completed_subtasks) == ("attempt 1", ["1.1.1 inner"])
    assert (after.values, after.current_goal, after.completed_subtasks) == (VALUES, "before", [])
    start = session.state(bodies(session, "CheckFailed")[0]["checkpoint"]).business_state
    assert (start.values, start.current_goal) == (after.values, after.current_goal)
    assert checkpoints(session)[0] == ("checked", "before good")


def test_after_the_last_attempt_the_task_fails_as_logic_and_names_the_last_good_checkpoint(
    engine: Engine, folder: Path, witness: Witness
) -> None:
    world = World(folder, witness, good=9, attempts=2)
    handle = engine.start(world.flow)
    session = engine.ended(handle, "failed")
    assert len(bodies(session, "CheckFailed")) == 2
    (failed,) = bodies(session, "TaskFailed")
    at = bodies(session, "CheckFailed")[0]["checkpoint"]
    assert (failed["cause"], failed["error_type"], failed["last_checkpoint"]) == ("logic", "CheckFailed", at)
    assert session.event(at).event_type == "CheckpointCreated"
    assert world.held() == AS_AT_THE_START | {"other.txt": "other 2"}
    assert session.state().business_state.values == VALUES
    with pytest.raises(TaskNotCompleted, match=f"at last: attempt 2 is not good.*ipyagent fork {session.id} --at {at}"):
        handle.result()
    effects = {e.name: e.state for e in ledger(session.events()) if e.what == "file"}
    assert set(effects.values()) == {"rolled back"}
    sound(session)


def test_a_fork_of_the_last_good_checkpoint_has_all_attempts_again(engine: Engine, folder: Path, witness: Witness) -> None:
    world = World(folder, witness, good=9, attempts=2)
    session = engine.ended(engine.start(world.flow), "failed")
    world.good, child = 2, session.fork(bodies(session, "CheckFailed")[0]["checkpoint"])
    engine.ended(engine.resume(child, world.flow), "completed")
    assert world.failures[2:] == [None, "attempt 1 is not good"]
    assert world.held()["src/a.py"] == "a 2"
    assert child.state().business_state.values["tries"] == ["start", 2]


def test_a_fork_in_the_middle_of_an_attempt_rolls_back_only_what_it_wrote_itself(
    engine: Engine, folder: Path, witness: Witness
) -> None:
    world = World(folder, witness)
    session = engine.ended(engine.start(world.flow), "completed")
    (middle,) = [e.seq for e in session.events() if e.activity_id == "1.1.1/write#1" and e.event_type == "ActivityCompleted"]
    held = world.held()
    child = session.fork(middle)
    engine.ended(engine.resume(child, world.flow), "completed")
    assert [e.name for e in ledger(child.events()) if e.what == "file" and e.state == "rolled back"] == []
    assert world.held() == held
    assert world.failures[2:] == [None, "attempt 1 is not good"]


def test_what_the_check_may_say(engine: Engine, folder: Path) -> None:
    said: list[Any] = [
        False,
        np.bool_(False),
        "  why  ",
        AssertionError("3 != 4"),
        AssertionError(),
        "x" * 9000,
        np.bool_(True),
    ]
    failures: list[str | None] = []

    def check(_: None) -> Any:
        answered = said[len(failures) - 1]
        if isinstance(answered, Exception):
            raise answered
        return answered

    @workflow
    async def flow(ctx: Context) -> None:
        async def part(failure: str | None) -> None:
            failures.append(failure)

        await ctx.checked("anything", part, check=check, attempts=len(said))

    engine.ended(engine.start(flow), "completed")
    assert failures[:6] == [None, "the check said no", "the check said no", "why", "AssertionError: 3 != 4", "AssertionError"]
    assert failures[6] == "... " + "x" * 4000


@pytest.mark.parametrize("answered", [1, "", [], {"ok": True}])
def test_another_answer_is_a_mistake_that_says_what_is_meant(engine: Engine, folder: Path, answered: Any) -> None:
    @workflow
    async def flow(ctx: Context) -> None:
        async def part(failure: str | None) -> None: ...

        await ctx.checked("anything", part, check=lambda _: answered)

    handle = engine.start(flow)
    engine.ended(handle, "suspended")
    with pytest.raises(TaskNotCompleted, match=r"the check of anything answered .* None or True, False, or a text"):
        handle.result()


def test_what_cannot_be_a_section_is_refused_before_anything_of_it_runs(
    engine: Engine, folder: Path, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def part(failure: str | None) -> None:
        witness("part")

    async def without() -> None: ...

    def sync(failure: str | None) -> None: ...

    def refused(said: str, *, given: Any = part, **options: Any) -> None:
        @workflow
        async def flow(ctx: Context) -> None:
            chosen: dict[str, Any] = {"check": bool, **options}
            await ctx.checked("s", given, **chosen)

        handle = engine.start(flow)
        session = engine.ended(handle, "suspended")
        assert session.state().system_state.reason == "definition"
        with pytest.raises(TaskNotCompleted, match=said):
            handle.result()

    refused("attempts=0 lets nothing run", attempts=0)
    refused("the part is not an async function", given=sync)
    refused("unexpected keyword argument 'failure'", given=without)
    refused("ctx.run needs a function", check="pytest -q")
    monkeypatch.setattr(notes, "MOST", 2)
    for name in "abc":
        (folder / name).write_text(name)
    refused(r"files=\['\*'\] match more than 2 files", files="*")
    monkeypatch.setattr(notes, "LARGEST", 2)
    refused("name only what the part changes", files="*")
    assert witness.order == []


def test_patterns(folder: Path) -> None:
    from ipyagent_sessions.workspace.workspace import Workspace

    for name in ("a.py", "src/a.py", "src/x/b.py", "src/x/y/c.py", "src/a.txt", ".git/a.py", "ipyagent.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "src/link.py").symlink_to(folder / "a.py")
    space = Workspace(folder)

    def found(*patterns: str) -> list[str]:
        return sorted(notes.note(space, patterns))

    assert found("*.py") == ["a.py"]
    assert found("./src/*.py") == ["src/a.py"]
    assert found("src/**/*.py") == ["src/a.py", "src/x/b.py", "src/x/y/c.py"]
    assert found("**/?.py") == ["a.py", "src/a.py", "src/x/b.py", "src/x/y/c.py"]
    assert found("src/**") == ["src/a.py", "src/a.txt", "src/x/b.py", "src/x/y/c.py"]
    assert found("src/a.*", "a.py") == ["a.py", "src/a.py", "src/a.txt"]
    assert found("[ab].py", "*.yaml") == []


def test_a_later_edit_by_a_person_is_asked_about_and_stays(engine: Engine, folder: Path, witness: Witness) -> None:
    world = World(folder, witness)

    def edit(number: int) -> None:
        if number == 1:
            (folder / "src/a.py").write_text("by a person")

    world.before_check = edit
    handle = engine.start(world.flow)
    (asked,) = until_asked(handle.session)
    approval = handle.session.state().execution_state.approvals[asked]
    assert "good failed its check in attempt 1" in approval.question
    assert b"src/a.py: somebody changed it since" in bytes(memoryview(approval.details))
    assert world.held()["src/a.py"] == "by a person"
    assert world.held()["src/deep/new.py"] == "new 1", "all or nothing: the others are not touched before somebody answers"
    in_second: list[dict[str, str]] = []
    world.in_part = lambda number: None
    world.before_check = lambda number: in_second.append(world.held())
    answer(handle.session, asked)
    session = engine.ended(handle, "completed")
    (failed,) = bodies(session, "CheckFailed")
    assert (failed["kept"], failed["files"]) == (["src/a.py"], ["src/deep/new.py", "src/gone.py"])
    assert "left as they are: src/a.py" in failed["sentence"]
    second = [b for b in bodies(session, "FileWritten") if b["path"] == "src/a.py"][-1]
    assert session.blobs.read(second["before"]) == b"by a person", "what stayed is what the next attempt goes back to"


def test_denied_nothing_is_rolled_back_and_the_task_fails(engine: Engine, folder: Path, witness: Witness) -> None:
    world = World(folder, witness)
    world.before_check = lambda number: (folder / "src/a.py").write_text("by a person")
    handle = engine.start(world.flow)
    (asked,) = until_asked(handle.session)
    held = world.held()
    answer(handle.session, asked, "denied")
    session = engine.ended(handle, "failed")
    assert world.held() == held
    assert bodies(session, "TaskFailed")[0]["cause"] == "logic"
    assert "nothing was rolled back, as somebody wished: attempt 1 is not good" in bodies(session, "TaskFailed")[0]["error"]


def test_headless_it_is_suspended_and_a_resume_goes_on_with_the_answer(engine: Engine, folder: Path, witness: Witness) -> None:
    world = World(folder, witness)
    world.before_check = lambda number: (folder / "src/a.py").write_text("by a person") if number == 1 else None
    session = engine.ended(engine.start(world.flow, headless=True), "suspended")
    assert session.state().system_state.reason == "approval"
    (folder / "src/a.py").write_text("a 1")  # the person takes it back
    answer(session, until_asked(session)[0])
    engine.ended(engine.resume(session, world.flow, headless=True), "completed")
    assert bodies(session, "CheckFailed")[0]["files"] == ["src/a.py", "src/deep/new.py", "src/gone.py"]
    assert witness.order == ["write 1", "check 1", "write 2", "check 2"]


def test_after_a_stop_inside_the_part_files_that_nothing_vouches_for_are_asked_about(
    engine: Engine, folder: Path, witness: Witness, gate: Gate
) -> None:
    """A person may have changed them meanwhile: from here that cannot be told."""
    world = World(folder, witness)

    async def wait(number: int) -> None:
        if number == 1:
            await gate.passing()

    world.in_part = wait
    handle = engine.start(world.flow)
    gate.reached()
    session = engine.crash(handle)
    (folder / "src/gone.py").write_text("made again by a person")
    gate.open()
    handle = engine.resume(session, world.flow)
    (asked,) = until_asked(session)
    details = bytes(memoryview(session.state().execution_state.approvals[asked].details)).decode()
    assert "src/gone.py: changed, perhaps by somebody else while the task was stopped" in details
    assert world.held()["src/gone.py"] == "made again by a person"
    answer(session, asked)
    engine.ended(handle, "completed")
    assert bodies(session, "CheckFailed")[0]["kept"] == ["src/a.py", "src/deep/new.py", "src/gone.py"]


def test_what_ctx_wrote_vouches_for_goes_back_after_a_stop_too(
    engine: Engine, folder: Path, witness: Witness, gate: Gate
) -> None:
    (folder / "a.txt").write_text("0")

    async def write(text: str) -> None:
        (folder / "a.txt").write_text(text)

    async def hold(failure: str | None) -> None:
        if failure is None:
            await gate.passing()

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async def part(failure: str | None) -> None:
            await ctx.run(write, failure or "1")
            ctx.wrote("a.txt")
            await ctx.run(hold, failure)

        await ctx.checked("s", part, check=lambda _: (folder / "a.txt").read_text() == "the check said no", files="*.txt")

    handle = engine.start(flow)
    gate.reached()
    session = engine.crash(handle)
    gate.open()
    engine.ended(engine.resume(session, flow), "completed")
    assert bodies(session, "CheckFailed")[0]["files"] == ["a.txt"]
    assert bodies(session, "ApprovalRequested") == []


def test_compensations_of_the_attempt_run_in_reverse_once_and_irreversible_effects_are_listed(
    engine: Engine, folder: Path, witness: Witness
) -> None:
    def do(what: str) -> None:
        witness(f"do {what}")

    def mail(n: int) -> None:
        witness(f"mail {n}")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(lambda: witness("outer"), name="outer", compensate=lambda: witness("undo outer"))

        async def part(failure: str | None) -> None:
            n = 1 if failure is None else 2
            for i in "ab":
                await ctx.run(do, f"{i}{n}", key=i, compensate=lambda said: witness(f"undo {said}"))
            await ctx.run(mail, n, effect="irreversible")

        await ctx.checked("s", part, check=lambda _: False, attempts=2)

    session = engine.ended(engine.start(flow), "failed")
    assert witness.order == [
        *("outer", "do a1", "do b1", "mail 1", "undo b1", "undo a1"),
        *("do a2", "do b2", "mail 2", "undo b2", "undo a2", "undo outer"),
    ]
    first, second = bodies(session, "CheckFailed")
    assert first["compensated"] == ["1.1/do:a", "1.1/do:b"]
    assert (first["stays"], second["stays"]) == (["1.1/mail#1"], ["1.2/mail#1"])
    assert "not undone: 1.1/mail#1" in first["sentence"]
    assert bodies(session, "TaskFailed")[0]["compensated"] == ["main/outer#1"]


def test_a_compensation_that_fails_needs_a_person_before_the_next_attempt(
    engine: Engine, folder: Path, witness: Witness
) -> None:
    def undo() -> None:
        witness("undo")
        raise OSError("no")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async def part(failure: str | None) -> bool:
            await ctx.run(lambda: witness("do"), name="do", compensate=undo)
            return failure is not None

        await ctx.checked("s", part, check=bool)

    session = engine.ended(engine.start(flow, headless=True), "suspended")
    (asked,) = until_asked(session)
    assert b"undoing 1.1/do#1 failed" in bytes(memoryview(session.state().execution_state.approvals[asked].details))
    engine.ended(engine.resume(session, flow, headless=True), "suspended")
    assert witness.order == ["do", "undo"], "while the question stands nothing is undone again"
    answer(session, asked)
    engine.ended(engine.resume(session, flow, headless=True), "completed")
    assert witness.order == ["do", "undo", "do"]
    assert bodies(session, "CheckFailed")[0].get("compensated", []) == []


def test_a_pause_while_an_undo_runs_lets_it_end_and_a_resume_does_the_rest(
    engine: Engine, folder: Path, witness: Witness, gate: Gate
) -> None:
    def do(what: str) -> None:
        witness(what)

    async def undo(what: str) -> None:
        await gate.passing()
        witness(f"undo {what}")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async def part(failure: str | None) -> bool:
            for i in "ab":
                await ctx.run(do, i, key=i, compensate=undo)
            return failure is not None

        await ctx.checked("s", part, check=bool)

    handle = engine.start(flow)
    gate.reached()
    engine.ask(handle, "pause")
    engine.ask(handle, "pause")  # a second press aborts what can be
    gate.open()
    session = engine.ended(handle, "interrupted")
    engine.ended(engine.resume(session, flow), "completed")
    assert witness.order == ["a", "b", "undo b", "undo a", "a", "b"]


def test_a_body_that_gives_up_while_an_undo_runs_lets_it_end_and_has_its_way(engine: Engine, witness: Witness) -> None:
    @workflow(default_effect="idempotent")
    async def flow(ctx: Context) -> str:
        body = asyncio.current_task()
        assert body is not None

        async def undo() -> None:
            body.cancel()  # as a timeout around the section does
            await asyncio.sleep(0)
            witness("undone")

        async def part(failure: str | None) -> None:
            await ctx.run(lambda: witness("do"), name="do", compensate=undo)

        try:
            await ctx.checked("work", part, check=lambda value: "not good")
        except asyncio.CancelledError:
            return "given up"
        return "went on"

    assert engine.start(flow).result(PATIENCE) == "given up"
    assert witness.order == ["do", "undone"]


def test_an_error_of_the_part_is_no_failed_check(engine: Engine, folder: Path, witness: Witness) -> None:
    @workflow
    async def flow(ctx: Context) -> None:
        async def part(failure: str | None) -> None:
            witness("part")
            raise ValueError("of the part")

        await ctx.checked("s", part, check=lambda _: True)

    session = engine.ended(engine.start(flow), "failed")
    assert (session.state().system_state.reason, witness.order) == ("error", ["part"])
    assert bodies(session, "CheckFailed") == []


def test_a_section_in_a_section_and_a_body_that_catches(engine: Engine, folder: Path, witness: Witness) -> None:
    (folder / "a").write_text("0")

    def write(text: str) -> None:
        (folder / "a").write_text(text)

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> Any:
        async def inner(outer: int, failure: str | None) -> int:
            ctx.append("inner", [outer, failure])
            await ctx.run(write, f"{outer}.{failure}")
            return outer if failure else 0

        async def outer(failure: str | None) -> int:
            number = 1 if failure is None else 2
            ctx.append("outer", number)
            return int(await ctx.checked("inner", inner, number, check=bool, files="a", attempts=2))

        async def never(failure: str | None) -> None:
            ctx.set("never", 1)

        value = await ctx.checked("outer", outer, check=lambda n: n == 2, files="a")
        try:
            await ctx.checked("never", never, check=lambda _: False, attempts=1)
        except CheckFailed:
            witness("caught")
        return value

    handle = engine.start(flow)
    session = engine.ended(handle, "completed")
    assert handle.result() == 2
    assert [b["name"] for b in bodies(session, "CheckFailed")] == ["inner", "outer", "inner", "never"]
    assert session.state().business_state.values == {"outer": [2], "inner": [[2, "the check said no"]]}
    assert (folder / "a").read_text() == "2.the check said no"
    assert witness.order == ["caught"]
    sound(session)


def test_a_replayed_body_finds_the_sections_that_are_done(engine: Engine, folder: Path, witness: Witness, gate: Gate) -> None:
    world = World(folder, witness, good=3)
    inner = world.flow

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> Any:
        value = await inner.function(ctx)
        async with ctx.stage("after"):
            await ctx.run(gate.passing)
        return value

    handle = engine.start(flow)
    gate.reached()
    session = engine.crash(handle)
    held = world.held()
    gate.open()
    handle = engine.resume(session, flow)
    engine.ended(handle, "completed")
    assert handle.result() == 3
    assert world.held() == held
    assert witness.order == ["write 1", "check 1", "write 2", "check 2", "write 3", "check 3"]
    assert len(bodies(session, "CheckFailed")) == 2
    assert len(bodies(session, "Published")) == 1
    assert session.state().business_state.completed_subtasks[-1] == "2 after"
    sound(session)


def test_sections_follow_one_another(engine: Engine, folder: Path) -> None:
    async def part(failure: str | None) -> None: ...

    @workflow
    async def flow(ctx: Context) -> None:
        await asyncio.gather(*[ctx.checked(n, part, check=lambda _: True) for n in "ab"])

    handle = engine.start(flow)
    assert handle.wait(PATIENCE)
    with pytest.raises(TaskNotCompleted, match="sections follow one another"):
        handle.result()


def test_sql_and_the_log_tell_of_it(engine: Engine, folder: Path, witness: Witness) -> None:
    session = engine.ended(engine.start(World(folder, witness, good=9, attempts=2).flow), "failed")
    first, second = bodies(session, "CheckFailed")
    failures = engine.store.sql("SELECT what, name, error, cause FROM failures ORDER BY seq").rows()
    assert [(r["what"], r["error"], r["cause"]) for r in failures[:2]] == [
        ("check", b["why"], "logic") for b in (first, second)
    ]
    assert (failures[2]["what"], failures[2]["cause"]) == ("task", "logic")
    recoveries = engine.store.sql("SELECT cause, from_seq, sentence FROM recoveries ORDER BY seq").rows()
    assert [r["sentence"] for r in recoveries] == [first["sentence"], second["sentence"]]
    assert {(r["cause"], r["from_seq"]) for r in recoveries} == {("logic", first["checkpoint"])}
    effects = engine.store.sql("SELECT DISTINCT state FROM effects WHERE what = 'file'").rows()
    assert effects == [{"state": "rolled back"}]
    lines = [line_of(e) for e in session.events()]
    assert first["sentence"] in lines
    assert "src/a.py is back" in lines
    assert "src/deep/new.py is removed: it was not there before" in lines
    assert "src/gone.py removed by checked section, its former content is kept" in lines


def test_while_the_disk_refuses_no_file_goes_back_and_a_resume_does_it_later(
    engine: Engine, folder: Path, witness: Witness, disk: FaultyDisk
) -> None:
    world = World(folder, witness)
    world.before_check = lambda number: disk.fail("before journal sync", times=50) if number == 1 else None
    session = engine.ended(engine.start(world.flow), "suspended")
    assert session.state().system_state.reason == "persistence"
    assert world.held()["src/a.py"] == "a 1"
    disk.mend()
    world.before_check = lambda number: None
    engine.ended(engine.resume(session, world.flow), "completed")
    assert bodies(session, "CheckFailed")[0]["files"] == ["src/a.py", "src/deep/new.py", "src/gone.py"]
    assert world.held()["src/a.py"] == "a 2"
    sound(session)


def test_files_too_large_for_a_line_of_the_log_go_back_after_a_crash_too(
    engine: Engine, folder: Path, witness: Witness, gate: Gate
) -> None:
    (folder / "big").write_bytes(b"0" * 100_000)

    def write(text: str) -> None:
        (folder / "big").write_bytes(text.encode() * 100_000)

    async def check(text: str) -> bool:
        if text == "1":
            await gate.passing()
        return text == "2"

    @workflow(default_effect="idempotent")
    async def flow(ctx: Context) -> None:
        async def part(failure: str | None) -> str:
            text = "2" if failure else "1"
            await ctx.run(write, text)
            return text

        await ctx.checked("s", part, check=check, files="big", attempts=2)

    handle = engine.start(flow)
    gate.reached()
    session = engine.crash(handle)
    gate.open()
    engine.ended(engine.resume(session, flow), "completed")
    (back,) = bodies(session, "FileRolledBack")
    assert back["checksum"] == bodies(session, "FileWritten")[0]["before_checksum"]
    assert (folder / "big").read_bytes() == b"2" * 100_000
    sound(session)
