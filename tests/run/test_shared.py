"""`ctx.store`: a body that runs again sees what it saw, and a write is done once."""

from __future__ import annotations

from typing import Any

from tests.run.harness import Engine, answer, until_asked

from ipyagent_sessions import workflow


def test_one_session_finds_what_another_put(engine: Engine) -> None:
    @workflow
    async def put(ctx: Any) -> None:
        await ctx.store.put("facts", "pi", {"value": 3.14}, ttl="7d")

    @workflow
    async def get(ctx: Any) -> Any:
        found = await ctx.store.search("facts", fields={"value": 3.14})
        return [await ctx.store.get("facts", "pi"), await ctx.store.get("facts", "e", "unknown"), found[0]["by"]]

    first = engine.start(put)
    first.result(10)
    assert engine.start(get).result(10) == [{"value": 3.14}, "unknown", first.task_id]


def test_a_resumed_body_sees_what_it_saw_and_its_writes_are_not_done_again(engine: Engine) -> None:
    @workflow
    async def work(ctx: Any) -> Any:
        seen = await ctx.store.get("facts", "n", 0)
        await ctx.store.put("facts", "n", seen + 1)
        await ctx.approve("Go on?")
        return [seen, await ctx.store.get("facts", "n")]

    handle = engine.start(work)
    asked = until_asked(handle.session)
    memory = engine.store.memory
    assert memory.get("facts", "n") == 1
    engine.crash(handle)
    memory.put("facts", "n", 100)
    answer(handle.session, asked[0])
    assert engine.resume(handle, work).result(10) == [0, 100]
    assert memory.get("facts", "n") == 100


def test_several_reads_at_once_need_a_call_each(engine: Engine) -> None:
    @workflow
    async def work(ctx: Any) -> Any:
        for n in range(3):
            await ctx.store.put("many", str(n), n)
        return await ctx.gather(*[ctx.store.get("many", str(n), call=n) for n in range(3)])

    assert engine.start(work).result(10) == [0, 1, 2]


def test_what_was_put_and_deleted_is_gone(engine: Engine) -> None:
    @workflow
    async def work(ctx: Any) -> Any:
        await ctx.store.put("a", "k", 1)
        await ctx.store.delete("a", "k")
        await ctx.store.delete("a", "k")
        return await ctx.store.get("a", "k")

    assert engine.start(work).result(10) is None
