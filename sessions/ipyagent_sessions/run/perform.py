"""One activity, from what is recorded of it: its result, what a crash cut short, or nothing yet."""

from __future__ import annotations

from typing import Any

from ipyagent_sessions.errors import ResultLost
from ipyagent_sessions.run import recall, settle
from ipyagent_sessions.run.execute import Unsettled, execute, rest
from ipyagent_sessions.run.plan import Plan
from ipyagent_sessions.run.task import TaskRun


async def perform(run: TaskRun, plan: Plan) -> Any:
    """The value of an activity: recorded, settled or made now.  Raises as `execute` and `recall` do, but for
    Unsettled, which is settled here."""
    recorded = run.state.business_state.results.get(plan.id)
    if recorded is not None:
        return recall.recall(run, plan, recorded)
    active = run.state.execution_state.active_activities.get(plan.id)
    attempt = 1
    if active is not None:
        if active.digest != plan.digest:
            raise recall.differs(run, plan, active.seq)
        run.check()
        plan = settle.as_begun(run, plan, active)
        attempt = active.attempt + 1
        if (plan.effect == "irreversible" or plan.retry.attempts > 1) and settle.at_rest(run, {plan.id}):
            attempt = active.attempt
        elif await settle.outcome(run, plan) == "recorded":
            return recall.recall(run, plan, run.state.business_state.results[plan.id])
    while True:
        try:
            value = await execute(run, plan, attempt=attempt)
        except ResultLost:
            recall.can_undo(run, plan)
            raise
        except Unsettled as cut:
            run.check()
            if await settle.outcome(run, plan) == "recorded":
                return recall.recall(run, plan, run.state.business_state.results[plan.id])
            attempt = cut.attempt + 1
            await rest(run, plan, cut)
        else:
            recall.can_undo(run, plan)
            return value
