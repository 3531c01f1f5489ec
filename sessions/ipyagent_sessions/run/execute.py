"""One activity, executed: intent, attempts, result, each logged in the order that keeps the promise.

An effect-free activity needs one sync: its start rides with its result.  One with an effect needs two: the intent is
durable before the function is called, the result before the next step sees it."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable
from typing import Any

from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import ActivityTimeout
from ipyagent_sessions.run import attempt_log, frames, outage, process
from ipyagent_sessions.run.definitions import ONCE, Activity, Retry, retry_of
from ipyagent_sessions.run.inside import Current
from ipyagent_sessions.run.keys import owner
from ipyagent_sessions.run.plan import Plan
from ipyagent_sessions.run.task import TaskRun, TaskStop
from ipyagent_sessions.run.threads import Ran


class _Late(Exception):
    """A thread ended with a value after its timeout had passed; it is used all the same."""

    def __init__(self, ran: Ran) -> None:
        self.ran = ran


class Unsettled(Exception):
    """An irreversible attempt was cut short, nobody knows whether it happened, and the policy allows another."""

    def __init__(self, cause: BaseException, attempt: int) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.attempt = attempt


async def execute(run: TaskRun, plan: Plan, *, attempt: int) -> Any:
    """Run an activity that has no recorded result, beginning with number `attempt`; returns its value.

    Raises ActivityError (or one of its kinds) when it ended without one, TaskStop when the task was asked to stop,
    Unsettled when it must be known whether an attempt happened before there is another.
    """
    run.check()
    run.works_again()
    while True:
        try:
            with _Executing(run, plan):
                if plan.retry.attempts <= 1:
                    value = await _attempt(run, plan, attempt, last=True)
                else:
                    value = await _with_retries(run, plan, attempt)
        except _Outage as out:
            await outage.outlast(run, plan.id, out.kind, out.told, at_least_s=outage.asked_wait(out.cause, run.clock.now()))
            attempt = out.attempt + 1
        else:
            outage.over(run, plan.id)
            return value


async def rest(run: TaskRun, plan: Plan, cut: Unsettled) -> None:
    """Wait before the attempt that follows `cut`, which certainly did not happen or is to be repeated.  Raises TaskStop."""
    policy = plan.retry
    wait = min(policy.max_s, policy.initial_s * policy.factor ** (cut.attempt - 1)) + random.uniform(0, policy.jitter_s)
    run.check()
    with _Executing(run, plan):
        attempt_log.retry(run, plan, cut.attempt, cut.cause, wait)
        await run.rest(wait)


class _Executing:
    """While inside, the call is shown as under way.  A class: a generator would take a tenth of an activity's own time."""

    __slots__ = ("_plan", "_run")

    def __init__(self, run: TaskRun, plan: Plan) -> None:
        self._run = run
        self._plan = plan

    def __enter__(self) -> None:
        self._run.executing[self._plan.id] = self._plan.activity.name

    def __exit__(self, *_: object) -> None:
        del self._run.executing[self._plan.id]
        if self._run.answers:
            self._run.waits()


async def _with_retries(run: TaskRun, plan: Plan, first: int) -> Any:
    """Attempts with growing waits between them.

    The count goes on across restarts, and an attempt that a crash cut short counts too (R080); each resume has at least one.
    """
    import tenacity

    policy = plan.retry
    spent = run.state.system_state.retry_counts.get(plan.id, 0)
    number = max(first, spent + 1)
    left = max(1, policy.attempts - number + 1)
    growing = tenacity.wait_exponential(multiplier=policy.initial_s, max=policy.max_s, exp_base=policy.factor)
    random_wait = growing + tenacity.wait_random(0, policy.jitter_s)
    retrying = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(left),
        wait=lambda state: max(random_wait(state), outage.asked_wait(_cause(state), run.clock.now())),
        sleep=run.rest,
        reraise=True,
        retry=tenacity.retry_if_exception_type(_Again),
        before_sleep=lambda state: attempt_log.retry(run, plan, *_next(state)),
    )
    async for tried in retrying:
        with tried:
            last = tried.retry_state.attempt_number >= left
            return await _attempt(run, plan, number + tried.retry_state.attempt_number - 1, last=last)
    raise AssertionError("tenacity ends with a value or an exception")


def _cause(state: Any) -> BaseException | None:
    """What an attempt that tenacity tells of ended with."""
    return getattr(state.outcome.exception(), "cause", None)


class _Outage(Exception):
    """An attempt failed because something is away or short, and the task may wait for that."""

    def __init__(self, cause: BaseException, attempt: int, kind: outage.Short, told: str) -> None:
        super().__init__(told)
        self.cause, self.attempt, self.kind, self.told = cause, attempt, kind, told


class _Again(Exception):
    """One attempt failed and the policy allows another."""

    def __init__(self, cause: BaseException, attempt: int) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.attempt = attempt


def _next(state: Any) -> tuple[int, BaseException, float]:
    """The attempt that failed, its cause and the wait that follows it, as tenacity tells them."""
    again = state.outcome.exception()
    assert isinstance(again, _Again)
    return again.attempt, again.cause, state.next_action.sleep


async def _attempt(run: TaskRun, plan: Plan, attempt: int, *, last: bool) -> Any:
    """One try: logs its start, and its result or (when no other follows) its failure."""
    run.check()
    attempt_log.start(run, plan, attempt)
    if plan.effect != "none":
        try:
            run.before_effect()
        except TaskStop:
            attempt_log.not_run(run, plan, attempt)
            raise
    begun = run.clock.monotonic()
    late = False
    try:
        ran = await _invoke(run, plan)
    except _Late as after:
        ran, late = after.ran, True
    except TaskStop:
        attempt_log.abort(run, plan, attempt)
        raise
    except asyncio.CancelledError as error:
        here = asyncio.current_task()
        if run.stopping is None and here is not None and not here.cancelling():  # nobody cancelled: the function raised it
            raise attempt_log.failure(run, plan, attempt, error, begun) from error
        attempt_log.abort(run, plan, attempt)
        run.check()
        raise
    except ActivityTimeout as error:
        if not last and not error.still_running and isinstance(error, plan.retry.on):
            raise _another(run, plan, attempt, error) from error
        attempt_log.failure(run, plan, attempt, error, begun, still_running=error.still_running)
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if not last and isinstance(error, plan.retry.on):
            raise _another(run, plan, attempt, error) from error
        _look_for_outage(run, plan, attempt, error)
        raise attempt_log.failure(run, plan, attempt, error, begun) from error
    return attempt_log.result(run, plan, attempt, ran, begun, late=late)


def _look_for_outage(run: TaskRun, plan: Plan, attempt: int, error: BaseException) -> None:
    """Raise _Outage, with the attempt logged as cut short, when the error means that something is away or short and the policy
    waits for that.  An irreversible call is then of unknown outcome, and not tried again by itself: TaskStop."""
    kind = outage.kind_of(error)
    if kind is None or not (plan.retry.then == "suspend" or (kind == "resources" and plan.effect != "irreversible")):
        return
    attempt_log.abort(run, plan, attempt, type(error).__name__, frames.text_of(error))
    told = f"{plan.activity.name}: {type(error).__name__}: {frames.text_of(error)}"
    if plan.effect == "irreversible":
        run.stop("suspend", reason=kind, detail=told)
        run.check()
    raise _Outage(error, attempt, kind, told) from error


def _another(run: TaskRun, plan: Plan, attempt: int, error: BaseException) -> _Again | Unsettled:
    """What lets another attempt follow: at once, or once it is known whether an irreversible one cut short happened."""
    if plan.effect != "irreversible" or not isinstance(error, ActivityTimeout | process.ChildDied):
        return _Again(error, attempt)
    text = error.error if isinstance(error, ActivityTimeout) else error.message
    late = isinstance(error, ActivityTimeout)
    body = p.ActivityFailed(
        plan.activity.name, type(error).__name__, text, plan.kind, plan.digest, timed_out=late, aborted=True
    )
    run.emit("ActivityFailed", body, activity_id=plan.id, attempt=attempt)
    return Unsettled(error, attempt)


async def _invoke(run: TaskRun, plan: Plan) -> Ran:
    """The function's value.  Raises what it raised, ActivityTimeout, or _Late."""
    activity = plan.activity
    token = owner.set(Current(run, plan))
    try:
        if activity.isolate == "process":
            work: Any = process.call(activity.name, activity.function, plan.args, plan.kwargs)
        elif activity.is_async:
            work = activity.function(*plan.args, **plan.kwargs)
        else:
            return await _in_thread(run, plan)
        return Ran(await _in_time(plan, work, plan.timeout_s), None)
    finally:
        owner.reset(token)


async def _in_time(plan: Plan, work: Awaitable[Any], left_s: float | None) -> Any:
    """The value of what can be stopped.  Raises ActivityTimeout when that takes longer than what is left of the time."""
    if left_s is None:
        return await work
    bound = asyncio.timeout(left_s)
    try:
        async with bound:
            return await work
    except TimeoutError:
        if not bound.expired():
            raise
        raise ActivityTimeout(plan.activity.name, f"ran longer than {plan.timeout_s:g} s and was stopped") from None


async def _in_thread(run: TaskRun, plan: Plan) -> Ran:
    """A synchronous function in a thread.  It cannot be stopped: after a timeout or an abort it is named as still
    running, and no other attempt begins before it has ended."""
    activity = plan.activity
    begun = run.clock.monotonic()
    future = run.threads.submit(lambda: activity.function(*plan.args, **plan.kwargs))
    why = f"ran longer than {plan.timeout_s:g} s; its thread cannot be stopped and is still running" if plan.timeout_s else ""
    try:
        done, _ = await asyncio.wait({future}, timeout=plan.timeout_s)
        late = not done and plan.retry.attempts > 1
        if late:
            said = p.ActivityProgressed(text=f"{activity.name} {why}; waiting for its end")
            run.emit("ActivityProgressed", said, activity_id=plan.id)
            done, _ = await asyncio.wait({future})
    except asyncio.CancelledError:
        _leave_behind(run, plan, future)
        raise
    if done:
        ran = future.result()
        if inspect.isawaitable(ran.value):  # the function of a decorator that is not async itself
            left_s = None if plan.timeout_s is None else max(0.0, plan.timeout_s - (run.clock.monotonic() - begun))
            ran = Ran(await _in_time(plan, ran.value, left_s), ran.cpu_s)
        if late:
            raise _Late(ran)
        return ran
    _leave_behind(run, plan, future)
    raise ActivityTimeout(activity.name, why + '; isolate="process" makes it killable', still_running=True)


def _leave_behind(run: TaskRun, plan: Plan, future: asyncio.Future[Ran]) -> None:
    """Name a thread that goes on although nobody waits for it."""
    run.stragglers[plan.id] = plan.activity.name

    def ended(done: asyncio.Future[Ran]) -> None:
        run.stragglers.pop(plan.id, None)
        if not done.cancelled():
            done.exception()

    future.add_done_callback(ended)


def default_retry(plan_retry: Retry | int | None, activity: Activity) -> Retry:
    """The policy of a call: its own, else the activity's, else one attempt.  Raises UsageError."""
    return retry_of(activity.name, plan_retry) or activity.retry or ONCE
