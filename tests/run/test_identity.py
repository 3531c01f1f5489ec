"""What makes an activity the same one after a restart, and what is refused because it would not be (DESIGN 7, R022)."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.run.harness import Engine, Gate, Witness, bodies, of_type

from ipyagent_sessions.errors import ActivityError, IdentityError, NotSerialisable, TaskNotCompleted, UsageError
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Activity, Workflow, activity, workflow


def ids_of(engine: Engine, flow: Workflow, *args: Any) -> list[str | None]:
    session = engine.ended(engine.start(flow, *args), "completed")
    return [e.activity_id for e in of_type(session, "ActivityCompleted") if b"stage" not in bytes(e.payload)]


def refusal(engine: Engine, flow: Workflow, *args: Any) -> Exception:
    """The error of a workflow that is refused; it must leave a task that can be resumed."""
    handle = engine.start(flow, *args)
    session = engine.ended(handle, "suspended")
    assert session.state().system_state.reason == "definition"
    with pytest.raises(TaskNotCompleted) as raised:
        handle.result(1)
    assert raised.value.state == "suspended"
    assert handle.outcome is not None
    assert handle.outcome.error is not None
    return handle.outcome.error


def test_an_id_is_made_of_stage_name_and_key_or_occurrence_in_code_order(engine: Engine) -> None:
    def scan(x: int) -> int:
        return x

    def measure(x: int) -> int:
        return x

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(scan, 1)
        await ctx.run(scan, 2)
        await ctx.run(measure, 1)
        async with ctx.stage("first"):
            await ctx.run(scan, 1)
            async with ctx.stage("inner"):
                await ctx.run(scan, 1, key="a/b")
                await ctx.run(scan, 1, key=7)
                await ctx.run(scan, 1, key=("x", 2))
        async with ctx.stage("second"):
            await ctx.run(scan, 1)

    assert ids_of(engine, flow) == [
        "main/scan#1",
        "main/scan#2",
        "main/measure#1",
        "1/scan#1",
        "1.1/scan:a/b",
        "1.1/scan:7",
        "1.1/scan:x,2",
        "2/scan#1",
    ]


def test_a_given_name_is_the_name_of_the_id(engine: Engine) -> None:
    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.run(lambda: 1, effect="none", name="one")
        await ctx.run(activity(name="two", effect="none")(lambda: 2))

    assert ids_of(engine, flow) == ["main/one#1", "main/two#1"]


@pytest.mark.parametrize("keyed_first", [True, False])
def test_a_key_and_an_occurrence_never_make_the_same_id(engine: Engine, keyed_first: bool) -> None:
    """Signs of ids may be in names: the first call of `a:b` has the id that `a` has with the key `b#1`."""

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        keyed = functools.partial(ctx.run, lambda: "keyed", name="a", key="b#1")
        counted = functools.partial(ctx.run, lambda: "counted", name="a:b")
        for call in (keyed, counted) if keyed_first else (counted, keyed):
            await call()

    assert "main/a:b#1 exists already" in str(refusal(engine, flow))


def test_a_key_that_only_looks_like_an_occurrence_is_a_key(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(lambda: 0, name="f", key="issue#0")
        await ctx.run(lambda: 1, name="a:b")
        await ctx.run(lambda: 2, name="a", key="b#01")

    assert ids_of(engine, flow) == ["main/f:issue#0", "main/a:b#1", "main/a:b#01"]


def test_a_lambda_without_a_name_is_refused(engine: Engine) -> None:
    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.run(lambda: 1)

    assert "no name" in str(refusal(engine, flow))


def test_a_key_may_be_a_path_no_encoding_can_write(engine: Engine, witness: Witness) -> None:
    """[14] `os.listdir` gives lone surrogates for a file name that is not UTF-8."""
    name = os.fsdecode(b"caf\xe9.txt")

    def convert(path: str) -> str:
        witness("convert")
        return path

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[str]:
        first = await ctx.run(convert, name, key=name)
        await ctx.approve("go on?", key=name)
        return [first]

    handle = engine.start(flow, headless=True)
    session = engine.ended(handle, "suspended")
    assert session.state().system_state.reason == "approval"
    engine.ended(engine.resume(handle, flow, headless=True), "suspended")
    assert witness.counts["convert"] == 1


def test_a_very_long_key_is_shortened_and_still_tells_apart(engine: Engine) -> None:
    def f(x: int) -> int:
        return x

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(f, 1, key="k" * 500 + "1")
        await ctx.run(f, 2, key="k" * 500 + "2")

    first, second = ids_of(engine, flow)
    assert first != second
    assert len(str(first)) < 200


def test_a_key_of_an_odd_type_is_refused(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(print, key={"a": 1})

    assert "a key is text or a number, not dict" in str(refusal(engine, flow))


def test_an_unkeyed_call_beside_an_open_sibling_is_refused(engine: Engine, witness: Witness) -> None:
    def f(x: int) -> None:
        witness(x)

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await asyncio.gather(ctx.run(f, 1), ctx.run(f, 2))

    assert "give it a key" in str(refusal(engine, flow))
    assert witness.order == []


def test_an_unkeyed_call_beside_a_keyed_open_sibling_is_refused(engine: Engine) -> None:
    def f(x: int) -> None:
        pass

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.gather(ctx.run(f, 1, key="one"), ctx.run(f, 2))

    assert "give it a key" in str(refusal(engine, flow))


def test_siblings_of_different_names_need_no_key(engine: Engine) -> None:
    def f() -> int:
        return 1

    def g() -> int:
        return 2

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[int]:
        return await ctx.gather(ctx.run(f), ctx.run(g))

    assert engine.start(flow).result(10) == [1, 2]


@pytest.mark.parametrize("side_by_side", ["ctx.gather", "asyncio.gather", "create_task"])
def test_an_unkeyed_call_from_parallel_coroutines_is_refused(engine: Engine, witness: Witness, side_by_side: str) -> None:
    """Which of them comes first may differ next time, also when the calls themselves never overlap."""

    def f(x: int) -> int:
        witness(x)
        return x

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async def branch(x: int) -> int:
            return int(await ctx.run(f, x))

        if side_by_side == "ctx.gather":
            await ctx.gather(branch(1), branch(2))
        elif side_by_side == "asyncio.gather":
            await asyncio.gather(branch(1), branch(2))
        else:
            await asyncio.create_task(branch(1))

    assert "give it a key" in str(refusal(engine, flow))
    assert witness.order == []


def test_keyed_calls_from_parallel_coroutines_are_fine(engine: Engine) -> None:
    def f(x: int) -> int:
        return x

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[int]:
        async def branch(x: int) -> int:
            return int(await ctx.run(f, x, key=x)) + int(await ctx.run(f, x, key=f"{x} again"))

        return await ctx.gather(branch(1), branch(2), branch(3))

    assert engine.start(flow).result(10) == [2, 4, 6]


def test_a_duplicate_key_is_refused(engine: Engine, witness: Witness) -> None:
    def f(x: int) -> None:
        witness(x)

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(f, 1, key="k")
        await ctx.run(f, 1, key="k")

    assert "a key of its own" in str(refusal(engine, flow))
    assert witness.order == ["1"]


def test_the_same_key_in_another_stage_is_another_activity(engine: Engine) -> None:
    def f(x: int) -> None:
        pass

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        for name in ("one", "two"):
            async with ctx.stage(name):
                await ctx.run(f, 1, key="k")

    assert ids_of(engine, flow) == ["1/f:k", "2/f:k"]


def test_changed_arguments_under_the_same_key_are_refused_with_the_difference(engine: Engine, witness: Witness) -> None:
    given = {"rate": 1}

    def convert(path: str, rate: int) -> None:
        witness(rate)

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        await ctx.run(convert, "a.txt", rate=given["rate"], key="a")
        await ctx.approve("on?")
        return "done"

    handle = engine.start(flow, headless=True)
    engine.ended(handle, "suspended")
    given["rate"] = 2
    again = engine.resume(handle, flow, headless=True)
    session = engine.ended(again, "suspended")
    assert again.outcome is not None
    said = str(again.outcome.error)
    assert isinstance(again.outcome.error, IdentityError)
    assert '{"rate":1}' in said
    assert '{"rate":2}' in said
    assert "--redo" in said
    assert witness.order == ["1"]
    given["rate"] = 1  # the change undone: the task goes on as if nothing had been
    engine.ended(engine.resume(session, flow, headless=True), "suspended")
    assert session.state().system_state.reason == "approval"
    assert witness.order == ["1"]


def test_changed_arguments_of_an_open_call_are_refused_too(engine: Engine, witness: Witness, gate: Gate) -> None:
    given = {"x": 1}

    async def f(x: int) -> None:
        witness(x)
        await gate.passing()

    @workflow(default_effect="idempotent")
    async def flow(ctx: Context) -> None:
        await ctx.run(f, given["x"])

    handle = engine.start(flow)
    gate.reached()
    engine.crash(handle)
    given["x"] = 2
    again = engine.resume(handle, flow)
    engine.ended(again, "suspended")
    assert again.outcome is not None
    assert "recorded [[1]], now [[2]]" in str(again.outcome.error)
    assert witness.order == ["1"]


def test_a_digest_does_not_depend_on_the_order_of_a_dict(engine: Engine, witness: Witness) -> None:
    given: dict[str, dict[str, int]] = {"options": {"a": 1, "b": 2}}

    def f(options: dict[str, int]) -> None:
        witness("f")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(f, given["options"])
        await ctx.approve("on?", details=given["options"])

    handle = engine.start(flow, headless=True)
    engine.ended(handle, "suspended")
    given["options"] = {"b": 2, "a": 1}
    session = engine.ended(engine.resume(handle, flow, headless=True), "suspended")
    assert session.state().system_state.reason == "approval"
    assert witness.counts["f"] == 1


@pytest.mark.parametrize(
    ("name", "expected"), [("f", {"a": 2, "b": 2, "g": 1}), ("f:b", {"a": 1, "b": 2, "g": 1}), ("g", {"a": 1, "b": 1, "g": 2})]
)
def test_redo_runs_the_named_activities_again_and_no_other(
    engine: Engine, witness: Witness, name: str, expected: dict[str, int]
) -> None:
    def f(x: str) -> str:
        witness(x)
        return x

    def g() -> None:
        witness("g")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        await ctx.gather(*[ctx.run(f, x, key=x) for x in "ab"])
        await ctx.run(g)
        await ctx.approve("on?")
        return "done"

    handle = engine.start(flow, headless=True)
    session = engine.ended(handle, "suspended")
    engine.ended(engine.resume(handle, flow, redo=(name,), headless=True), "suspended")
    assert witness.counts == expected
    redone = [b for b in bodies(session, "ControlRequested") if b["action"] == "redo"]
    assert redone[0]["args"]["name"] == name


def test_redo_of_a_name_that_fits_nothing_is_refused_at_the_call_and_changes_nothing(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.approve("on?")

    handle = engine.start(flow, headless=True)
    session = engine.ended(handle, "suspended")
    last = session.last_seq()
    with pytest.raises(UsageError, match="no recorded activity of that name"):
        _ = engine.resume(handle, flow, redo=("nothing",), headless=True)
    assert (session.effective_state(), session.last_seq()) == ("suspended", last)
    assert not session.held()


def make_flow(witness: Witness, source: Callable[[int], int] | Activity) -> Workflow:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> int:
        value = await ctx.run(source, 3, name="source")
        await ctx.approve("on?")
        return int(value)

    return flow


def test_changed_source_of_a_completed_activity_is_reported_and_its_result_kept(engine: Engine, witness: Witness) -> None:
    def before(x: int) -> int:
        witness("before")
        return x

    def after(x: int) -> int:
        witness("after")
        return x * 100

    handle = engine.start(make_flow(witness, before), headless=True)
    session = engine.ended(handle, "suspended")
    engine.ended(engine.resume(handle, make_flow(witness, after), headless=True), "suspended")
    told = [b["text"] for b in bodies(session, "AlarmRaised") if b["kind"] == "source_changed"]
    assert len(told) == 1
    assert "source has changed" in told[0]
    assert witness.order == ["before"]


def test_a_call_that_is_never_awaited_is_an_error(engine: Engine, witness: Witness) -> None:
    def f() -> None:
        witness("f")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        ctx.run(f)  # type: ignore[unused-awaitable]  # the mistake under test

    assert "main/f#1 was never awaited" in str(refusal(engine, flow))
    assert witness.order == []


def test_a_call_that_is_never_awaited_in_a_stage_is_an_error_at_its_end(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async with ctx.stage("one"):
            ctx.run(print)  # type: ignore[unused-awaitable]  # the mistake under test

    assert "1/print#1 was never awaited" in str(refusal(engine, flow))


def test_a_call_may_be_made_before_a_stage_and_awaited_after_it(engine: Engine) -> None:
    def f() -> int:
        return 1

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> int:
        call = ctx.run(f)
        async with ctx.stage("one"):
            pass
        return int(await call)

    assert engine.start(flow).result(10) == 1


def test_a_call_is_awaited_once(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        call = ctx.run(len, "ab", effect="none")
        await call
        await call

    assert "awaited twice" in str(refusal(engine, flow))


def test_ctx_inside_an_activity_is_refused(engine: Engine) -> None:
    seen: list[Exception] = []

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async def inner() -> None:
            try:
                await ctx.run(print)
            except UsageError as error:
                seen.append(error)
                raise

        await ctx.run(inner)

    engine.ended(engine.start(flow), "failed")
    assert "inside an activity" in str(seen[0])


def test_ctx_inside_an_activity_in_a_thread_is_refused(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        def inner() -> None:
            ctx.emit("Something")

        await ctx.run(inner)

    handle = engine.start(flow)
    engine.ended(handle, "failed")
    assert handle.outcome is not None
    assert isinstance(handle.outcome.error, ActivityError)
    assert "inside an activity" in handle.outcome.error.error


@pytest.mark.parametrize("option", ["key", "effect", "retry", "timeout", "verify", "compensate", "isolate", "name"])
def test_a_parameter_with_the_name_of_an_option_is_refused_when_it_is_given(engine: Engine, option: str) -> None:
    made: dict[str, Any] = {}
    exec(f"def f({option}=None): return {option}", made)
    given: Any = {
        "key": "k",
        "effect": "none",
        "retry": 2,
        "timeout": 5,
        "verify": print,
        "compensate": print,
        "isolate": "process",
        "name": "n",
    }[option]

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        options: dict[str, Any] = {option: given}
        await ctx.run(made["f"], **options)

    assert f"a parameter of its own named {option}" in str(refusal(engine, flow))


def test_such_a_function_runs_when_its_parameter_is_not_given_by_name(engine: Engine) -> None:
    def f(key: str = "own") -> str:
        return key

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[str]:
        return [await ctx.run(f), await ctx.run(f, "given")]

    assert engine.start(flow).result(10) == ["own", "given"]


def test_an_effect_that_does_not_exist_is_refused(engine: Engine, witness: Witness) -> None:
    wrong: Any = "reversible"

    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.run(witness, "f", effect=wrong)

    assert "reversible" in str(refusal(engine, flow))
    assert witness.order == []


def test_arguments_that_cannot_be_recorded_are_refused_before_the_call(engine: Engine, witness: Witness) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(witness, open(os.devnull))  # noqa: SIM115  # the mistake under test

    error = refusal(engine, flow)
    assert isinstance(error, NotSerialisable)
    assert "TextIOWrapper" in str(error)
    assert witness.order == []


def test_a_value_instead_of_a_function_is_refused(engine: Engine) -> None:
    wrong: Any = 3

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(wrong)

    assert "ctx.run needs a function, not int" in str(refusal(engine, flow))


def test_definitions_that_cannot_run_are_refused_before_anything_starts(engine: Engine) -> None:
    def plain(ctx: Context) -> None: ...

    async def no_context() -> None: ...

    @workflow
    async def flow(ctx: Context, a: int) -> None: ...

    wrong: Any = plain
    with pytest.raises(UsageError, match="not an async function"):
        workflow(wrong)
    with pytest.raises(UsageError, match="takes no context"):
        workflow(no_context)
    with pytest.raises(UsageError, match="missing a required argument: 'a'"):
        _ = engine.start(flow)
    with pytest.raises(NotSerialisable, match="flow"):
        _ = engine.start(flow, object())
    with pytest.raises(UsageError, match="is a workflow and is not called directly"):
        flow(1)
    assert list(engine.store.session_ids()) == []


def test_a_resume_whose_workflow_takes_other_arguments_now_is_refused_before_it_starts(engine: Engine) -> None:
    async def before(ctx: Context, n: int) -> None:
        await ctx.approve("on?")

    async def after(ctx: Context, m: int, k: int) -> None:
        await ctx.approve("on?")

    after.__qualname__ = before.__qualname__  # the same cell, edited
    session = engine.ended(engine.start(Workflow(before), 3, headless=True), "suspended")
    last = session.last_seq()
    with pytest.raises(
        UsageError, match=r"so the task was started; .*undo that change to go on, or .*: ipyagent run ... --new"
    ):
        _ = engine.resume(session, Workflow(after))
    assert session.last_seq() == last, "nothing was logged"
    assert not session.held()
