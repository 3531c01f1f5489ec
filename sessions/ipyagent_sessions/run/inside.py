"""What the code of an activity can say while it runs: how far it is, and what it is about to change in the world."""

from __future__ import annotations

from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.run.keys import Owner, owner
from ipyagent_sessions.run.plan import Plan
from ipyagent_sessions.run.task import TaskRun
from ipyagent_sessions.undo.ledger import TAKEN


class Current(Owner):
    """The activity whose function runs."""

    def __init__(self, run: TaskRun, plan: Plan) -> None:
        self.task_id = run.task_id
        self.activity_id = plan.id
        self.run = run
        self.plan = plan
        self.reported = -1.0

    @property
    def started_seq(self) -> int | None:
        """The event of its start, which is the parent of what it tells."""
        with self.run.appender.frozen() as state:
            active = state.execution_state.active_activities.get(self.plan.id)
            return active.seq if active is not None else None


def current() -> Current | None:
    """The activity whose function the running code is in."""
    found = owner.get()
    return found if isinstance(found, Current) else None


def progress(done: int, total: int | None = None, text: str = "") -> None:
    """Say from inside an activity how far it is; outside of one nothing happens.  Logged at most once a second."""
    here = current()
    if here is None:
        return
    run, plan = here.run, here.plan
    now = run.clock.monotonic()
    if now - here.reported >= 1.0 or done == total:
        here.reported = now
        body = p.ActivityProgressed(done, total, text)
        run.call(lambda: run.emit("ActivityProgressed", body, activity_id=plan.id) if plan.id in run.executing else None)


def declare_effect(what: str, name: str, note: str = "") -> None:
    """Say from inside an activity what it is about to change: `declare_effect("row", "orders/17", "price 3 -> 4")`.

    The effects ledger lists it by itself, as certain as the activity that it belongs to.  It is on disk when this returns, so
    that what follows cannot happen untold.  `what` is one word, `name` says which one, `note` what changes.

    Raises UsageError outside of an activity of this process, PersistenceError when it cannot be recorded, and LeaseLost when
    somebody else has taken the task over: then do not go on.
    """
    here = current()
    if here is None:
        raise UsageError(
            "declare_effect was called outside of an activity, or in a process of its own",
            hint='call it in the function that ctx.run runs, without isolate="process"',
        )
    for given in (what, name, note):
        if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without a type checker
            raise UsageError(
                f"declare_effect: {given!r} is no text", hint='declare_effect("row", "orders/17", "price 3 -> 4")'
            )
    if not name.strip():
        raise UsageError("declare_effect: the effect has no name", hint='say which one: declare_effect("row", "orders/17")')
    if not what.isidentifier() or what in TAKEN:
        raise UsageError(
            f"declare_effect: {what!r} is no word for an effect", hint="one of yours: row, request, upload, message"
        )
    if here.plan.effect == "none":
        raise UsageError(
            f'{here.plan.activity.name} is declared to have the effect "none", and was about to change {what} {name}',
            hint='declare it "idempotent" or "irreversible"',
        )
    body = p.EffectDeclared(what, ev.title(name), ev.title(note))
    appender = here.run.appender
    appender.emit("EffectDeclared", body, task_id=here.run.task_id, parent=here.started_seq)
    appender.barrier()
