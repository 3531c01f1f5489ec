"""What an activity says that it changes is on disk before it does, and as certain as the activity (R171)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.run.conftest import clock, engine, gate
from tests.run.harness import PATIENCE, Engine, Gate, bodies

from ipyagent_sessions.commands import outside
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.config import CheckpointPolicy
from ipyagent_sessions.errors import TaskNotCompleted, UsageError
from ipyagent_sessions.events import Event
from ipyagent_sessions.history.sql import query
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.run.inside import declare_effect
from ipyagent_sessions.run.triggers import Triggers
from ipyagent_sessions.session import Session
from ipyagent_sessions.state import State
from ipyagent_sessions.store import Store
from ipyagent_sessions.undo.ledger import ledger, line, still_there

__all__ = ["clock", "engine", "gate"]
NOTE = ("price", "3", "->", "4")


def flow_of(function: Callable[..., Any], *args: Any, **options: Any) -> Workflow:
    @workflow
    async def flow(ctx: Context) -> Any:
        return await ctx.run(function, *args, **options)

    return flow


def told(session: Session) -> list[tuple[str, str, str]]:
    return [(e.what, e.name, e.state) for e in ledger(session.events())]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_row_is_listed_by_itself_and_the_activity_is_told_by_it(engine: Engine, store: Store, is_async: bool) -> None:
    def reprice() -> str:
        declare_effect("row", "orders/17", " ".join(NOTE))
        return "done"

    async def reprice_async() -> str:
        return reprice()

    handle = engine.start(flow_of(reprice_async if is_async else reprice, effect="idempotent", name="reprice"))
    assert handle.result(PATIENCE) == "done"
    session = handle.session
    assert told(session) == [("activity", "main/reprice#1", "done"), ("row", "orders/17", "done")]
    assert [line(e) for e in still_there(ledger(session.events()))] == ["idempotent row orders/17"]
    table = outside.effects(Door(store, "user:anna"), session, after=None).text
    assert table.splitlines()[-1].split()[2:] == ["row", "done", "idempotent", "orders/17", "main/reprice#1", *NOTE]
    rows = query(store, "SELECT what, name, state, effect, activity_id FROM effects ORDER BY seq").rows()
    assert [tuple(row.values()) for row in rows] == [
        ("activity", "main/reprice#1", "done", "idempotent", "main/reprice#1"),
        ("row", "orders/17", "done", "idempotent", "main/reprice#1"),
    ]


def test_it_is_on_disk_before_the_function_goes_on_and_unknown_after_a_crash(engine: Engine, gate: Gate) -> None:
    async def send() -> None:
        declare_effect("request", "POST /orders", "order 17")
        await gate.passing()

    flow = flow_of(send, effect="idempotent")
    handle = engine.start(flow)
    gate.reached()
    assert bodies(handle.session, "EffectDeclared") == [{"what": "request", "name": "POST /orders", "note": "order 17"}]
    session = engine.crash(handle)
    assert told(session) == [("activity", "main/send#1", "unknown"), ("request", "POST /orders", "unknown")]
    gate.open()
    engine.resume(session, flow).result(PATIENCE)
    assert told(session) == [("activity", "main/send#1", "done"), ("request", "POST /orders", "done")]
    assert [line(e) for e in still_there(ledger(session.events()))] == ["idempotent request POST /orders"]


def test_a_compensated_activity_takes_its_rows_with_it(engine: Engine) -> None:
    def insert() -> None:
        declare_effect("row", "orders/17")

    def fail() -> None:
        raise ValueError("no")

    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.run(insert, effect="idempotent", compensate=lambda: None)
        await ctx.run(fail, effect="none")

    handle = engine.start(flow)
    with pytest.raises(TaskNotCompleted):
        handle.result(PATIENCE)
    assert ("row", "orders/17", "compensated") in told(handle.session)
    assert still_there(ledger(handle.session.events())) == []


def test_what_a_thread_declares_triggers_on_the_tasks_loop_and_before_its_result(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[tuple[str, int]] = []
    real = Triggers.observe

    def observed(self: Triggers, event: Event, state: State) -> str | None:
        looked.append((event.event_type, threading.get_ident()))
        return real(self, event, state)

    monkeypatch.setattr(Triggers, "observe", observed)
    threads: list[int] = []

    def insert(n: int) -> None:
        threads.append(threading.get_ident())
        for row in range(5):
            declare_effect("row", f"orders/{n}-{row}")

    @workflow(default_effect="idempotent")
    async def flow(ctx: Context) -> int:
        await asyncio.gather(*(ctx.run(insert, n, key=n) for n in range(4)))
        return threading.get_ident()

    policy = CheckpointPolicy(None, events=("EffectDeclared",))
    handle = engine.start(flow, policy=policy)
    loop = handle.result(PATIENCE)
    assert loop not in threads
    assert {where for _, where in looked} == {loop}
    told = [e.event_type for e in handle.session.events()]
    assert told.count("EffectDeclared") == 20
    assert bodies(handle.session, "CheckpointCreated")[:-1] == [{"trigger": "EffectDeclared"}] * 20
    last = max(at for at, kind in enumerate(told) if kind == "ActivityCompleted")
    assert told[last:].count("CheckpointCreated") == 1, "only that of the end"


def change(what: str) -> None:
    declare_effect(what, "17")


@pytest.mark.parametrize(
    ("what", "effect", "isolate", "said"),
    [
        ("row", "none", None, 'declared to have the effect "none"'),
        ("file", "idempotent", None, "'file' is no word for an effect"),
        ("two words", "idempotent", None, "'two words' is no word for an effect"),
        ("row", "idempotent", "process", "in a process of its own"),
    ],
)
def test_what_cannot_be_declared_is_refused(engine: Engine, what: str, effect: str, isolate: Any, said: str) -> None:
    handle = engine.start(flow_of(change, what, effect=effect, isolate=isolate))
    assert handle.wait(PATIENCE)
    assert said in handle.session.state().system_state.detail
    assert bodies(handle.session, "EffectDeclared") == []


def test_outside_of_an_activity_it_is_refused() -> None:
    async def outside() -> None:
        declare_effect("row", "1")

    with pytest.raises(UsageError, match="outside of an activity"):
        asyncio.run(outside())


@pytest.mark.parametrize("given", [(5, "a"), ("row", None), ("row", "a", 7), ("row", ""), ("row", "  ")], ids=repr)
def test_what_is_no_text_or_has_no_name_is_one_clear_error(engine: Engine, given: tuple[Any, ...]) -> None:
    def wrong() -> str:
        with pytest.raises(UsageError, match="declare_effect"):
            declare_effect(*given)
        return "refused"

    assert engine.start(flow_of(wrong, effect="idempotent")).result(PATIENCE) == "refused"
