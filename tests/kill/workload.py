"""The workflow that is killed: stages, parallel activities of each effect, approvals, recorded values, a sleep, big results,
and outages of each class.

Each activity is told who it is (`who`, the part of its identity after the stage), so that the witness needs no word of the
engine's.  The result is the same however often the run is killed: recorded values are only compared with themselves.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from typing import Any, Final

from tests.kill import outside
from tests.kill.witness import Witness

from ipyagent_sessions.errors import ResultLost
from ipyagent_sessions.run.calls import Call
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Done, Retry, activity, workflow

APPROVED: Final = "Publish the report?"
DENIED: Final = "Delete the originals?"
ANSWERS: Final = {APPROVED: "approved", DENIED: "denied"}
IRREVERSIBLE: Final = ("charge", "publish", "letter")
PACE_S: Final = 0.004


def _pace(who: str, part: str) -> float:
    """Seconds that this part of an activity takes: between nothing and PACE_S, the same each time."""
    return PACE_S * hashlib.sha256(f"{who} {part}".encode()).digest()[0] / 255


@activity(effect="none")
def measure(who: str, world: str, size: int) -> str:
    """In a thread; gives `size` characters, sometimes more than go into an event."""
    with Witness(world).execution(who):
        time.sleep(_pace(who, "a"))
        return (who + " ") * (size // (len(who) + 1) + 1)


@activity(effect="none")
async def look(who: str, world: str, n: int) -> dict[str, int]:
    with Witness(world).execution(who):
        await asyncio.sleep(_pace(who, "a"))
        return {"n": n, "square": n * n}


@activity(effect="idempotent")
async def put(who: str, world: str, value: int) -> int:
    """Leaves the same world however often it runs."""
    with Witness(world).execution(who):
        await asyncio.sleep(_pace(who, "a"))
        Witness(world).note("effect", id=who, value=value)
        return value


@activity(effect="idempotent")
async def stamp(who: str, world: str, uuid: str, at: str, chance: float) -> str:
    """Uses what is recorded: with other arguments on a resume the engine would refuse it."""
    with Witness(world).execution(who):
        return f"{uuid} {at} {chance}"


@activity(effect="none", retry=Retry(5, initial_s=0.005, jitter_s=0.0))
async def flaky(who: str, world: str) -> str:
    """Fails the first time it is ever run."""
    with Witness(world).execution(who):
        if sum(n["id"] == who for n in Witness(world).notes("begin")) == 1:
            raise ConnectionError("the other side is not there yet")
        return "reached"


FAULTS: Final = (
    ("network", outside.hung_up),
    ("network", outside.silent),
    ("disk", outside.full_disk),
    ("memory", outside.no_memory),
    ("network", outside.refused),
    ("rate limit", outside.busy),
    ("network", outside.dripping),
    ("disk", outside.full_quota),
)
"""What goes wrong with the first executions of `fetch`, one after the other, whichever process they are in."""


@activity(effect="idempotent", retry=Retry(1, then="suspend"))
def fetch(who: str, world: str) -> str:
    """In a thread; meets an outage of each class before it gets through."""
    witness = Witness(world)
    with witness.execution(who):
        number = sum(n["kind"] not in ("timeout", "logic error") for n in witness.notes("outage"))
        if number < len(FAULTS):
            kind, meet = FAULTS[number]
            witness.note("outage", kind=kind)
            meet()
            raise AssertionError(f"{meet.__name__} did not come to pass")
        return "fetched"


@activity(effect="none", retry=Retry(4, initial_s=0.005, jitter_s=0.0), timeout=0.1)
async def slow(who: str, world: str) -> str:
    """Hangs until its time is over, the first time it is ever run."""
    with Witness(world).execution(who):
        if sum(n["id"] == who for n in Witness(world).notes("begin")) == 1:
            Witness(world).note("outage", kind="timeout")
            await asyncio.sleep(60)
        return "came"


def charged(who: str, world: str, amount: int) -> Done | bool:
    """Whether it happened, with its result: looks at the world, not at the log."""
    return Done({"receipt": who, "amount": amount}) if Witness(world).happened(who) else False


@activity(effect="irreversible", verify=charged)
async def charge(who: str, world: str, amount: int) -> dict[str, Any]:
    with Witness(world).execution(who):
        await asyncio.sleep(_pace(who, "before"))
        Witness(world).note("effect", id=who, amount=amount)
        await asyncio.sleep(_pace(who, "after"))
        return {"receipt": who, "amount": amount}


async def published(who: str, world: str) -> bool:
    return Witness(world).happened(who)


@activity(effect="irreversible", verify=published)
def publish(who: str, world: str) -> None:
    """In a thread; its verify function knows whether, not what."""
    with Witness(world).execution(who):
        time.sleep(_pace(who, "before"))
        Witness(world).note("effect", id=who)
        time.sleep(_pace(who, "after"))


@activity(effect="irreversible")
async def letter(who: str, world: str) -> str:
    """Nobody but a person can say whether it went out."""
    with Witness(world).execution(who):
        await asyncio.sleep(_pace(who, "before"))
        Witness(world).note("effect", id=who)
        await asyncio.sleep(_pace(who, "after"))
        return "sent"


async def seen(witness: Witness, call: Call) -> Any:
    """The value of `call`, noted as seen by the body once it has it."""
    value = await call
    witness.note("seen", id=call.id)
    return value


async def sure(witness: Witness, call: Call, otherwise: Any) -> Any:
    """As `seen`, for a call whose result may be lost although it happened."""
    try:
        return await seen(witness, call)
    except ResultLost:
        witness.note("seen", id=call.id)
        return otherwise


async def draft(ctx: Context, world: str, *, failure: str | None) -> dict[str, Any]:
    """A part of the body whose first attempt is not good, and is rolled back."""
    number = 1 if failure is None else 2
    ctx.append("drafts", number)
    return {"world": world, "number": await ctx.run(put, f"put:draft-{number}", world, number, key=f"draft-{number}")}


@activity(effect="none")
def good(made: dict[str, Any]) -> str | None:
    """A logic error in the first attempt."""
    if made["number"] > 1:
        return None
    Witness(made["world"]).note("outage", kind="logic error")
    return "the first draft is not good"


@workflow(default_effect="none")
async def errands(ctx: Context, seed: int, world: str) -> dict[str, Any]:
    """About forty activities whose number, sizes and order come from `seed`."""
    rng, witness = random.Random(seed), Witness(world)
    uuid, at, chance = str(ctx.uuid()), ctx.now().isoformat(), ctx.random()
    ctx.goal("run all errands once")
    many, few = rng.randint(8, 12), rng.randint(3, 5)
    sizes = [rng.choice((40, 400, 3000, 40_000, 90_000)) for _ in range(many)]
    ctx.expect(2 * many + 4 * few + 8)
    first = await seen(witness, ctx.run(stamp, "stamp#1", world, uuid, at, chance))
    witness.note("value", value=first)

    async with ctx.stage("gather"):
        texts = await ctx.gather(
            *[seen(witness, ctx.run(measure, f"measure:{k}", world, size, key=k)) for k, size in enumerate(sizes)], limit=4
        )
        both = [ctx.run(look, f"look:{k}", world, k, key=k) for k in range(few)]
        both += [ctx.run(put, f"put:{k}", world, rng.randint(1, 99), key=k) for k in range(many)]
        rng.shuffle(both)
        numbers = await ctx.gather(*[seen(witness, c) for c in both], limit=5)
        for k, size in enumerate(sizes):
            ctx.emit("TextMeasured", {"k": k, "size": size}, key=k)
            ctx.append("sizes", size, key=k)

    async with ctx.stage("effects"):
        reached = await seen(witness, ctx.run(flaky, "flaky:line", world, key="line"))
        late = await seen(witness, ctx.run(slow, "slow:once", world, key="once"))
        fetched = await seen(witness, ctx.run(fetch, "fetch:all", world, key="all"))
        async with ctx.stage("money"):
            receipts = await ctx.gather(
                *[seen(witness, ctx.run(charge, f"charge:{k}", world, 10 * k, key=k)) for k in range(few)], limit=3
            )
        letters = [await sure(witness, ctx.run(letter, f"letter#{n + 1}", world), "sent") for n in range(2)]
        yes = await ctx.approve(APPROVED, details=[len(t) for t in texts])
        if yes:
            await ctx.gather(*[sure(witness, ctx.run(publish, f"publish:{k}", world, key=k), None) for k in range(2)])

    await ctx.sleep(0.05)
    async with ctx.stage("rest"):
        no = await ctx.approve(DENIED, key="originals")
        letters.append(await sure(witness, ctx.run(letter, "letter:last", world, key="last"), "sent"))
        more = await ctx.gather(
            *[seen(witness, ctx.run(put, f"put:more-{k}", world, k, key=f"more-{k}")) for k in range(few)], limit=2
        )
        drafts = await ctx.checked("drafts", draft, ctx, world, check=good, attempts=2)
        ctx.set("finished", True)
    again = await seen(witness, ctx.run(stamp, "stamp#2", world, uuid, at, chance))
    return {
        "texts": [hashlib.sha256(t.encode()).hexdigest()[:12] for t in texts],
        "numbers": numbers,
        "reached": reached,
        "late": late,
        "fetched": fetched,
        "receipts": receipts,
        "letters": letters,
        "yes": bool(yes),
        "no": bool(no),
        "more": more,
        "drafts": [drafts["number"], ctx.values["drafts"]],
        "same": first == again,
        "sizes": ctx.values["sizes"],
    }
