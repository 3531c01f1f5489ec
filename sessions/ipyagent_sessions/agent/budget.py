"""What a task or a session may use of money, tokens, model requests and time; kept across resumes and forks.

A limit stops work *before* the next model request (R237, R238): what was spent is in the folded state, so a resumed or forked
session counts what it shares with its parent once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ipyagent_sessions import events as ev
from ipyagent_sessions.config import seconds
from ipyagent_sessions.errors import ConfigError, UsageError
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.state import State

KINDS: Final = ("usd", "tokens", "steps", "time")
_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)([kM]?)")


class Over(NamedTuple):
    """A limit that is reached: `what` is one of `KINDS`, `scope` task or session.

    With `unpriced` that many requests of the scope have no known price, so a limit of money could not be kept."""

    what: str
    scope: str
    limit: float
    spent: float
    unpriced: int = 0

    def __str__(self) -> str:
        if self.unpriced:
            requests = "1 request" if self.unpriced == 1 else f"{self.unpriced} requests"
            return (
                f"nobody knows what {requests} of the {self.scope} cost, so its limit of {amount(self.what, self.limit)} "
                "cannot be kept; limit tokens or steps as well: resume --budget tokens=50k"
            )
        return f"the {self.scope} has used {amount(self.what, self.spent)} of {amount(self.what, self.limit)}"


def parse(text: str) -> dict[str, float]:
    """The limits of `usd=1,tokens=50k,steps=20,time=10m`; time in seconds.  Raises UsageError."""
    limits: dict[str, float] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        what, _, value = part.partition("=")
        if what not in KINDS or not value:
            raise UsageError(f"--budget {part}: not a limit", hint="write usd=1,tokens=50k,steps=20,time=10m, or some of them")
        limits[what] = _value(what, value.strip().removeprefix("+"))
    return limits


def _value(what: str, value: str) -> float:
    if what == "time":
        try:
            return seconds(value, "--budget time")
        except ConfigError as error:  # said in a command, not in a file
            raise UsageError(error.message, hint=error.hint) from error
    match = _NUMBER.fullmatch(value)
    found = float(match[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[match[2]] if match else math.inf
    if found == math.inf:
        raise UsageError(f"--budget {what}={value[:40]}: not an amount", hint="a number, such as 0.5, 20 or 50k")
    return found


def amount(what: str, value: float) -> str:
    """An amount as a person reads it."""
    if what == "usd":
        return f"${value:.4f}".rstrip("0").rstrip(".") if value < 1 else f"${value:.2f}"
    return f"{value:,.0f} s" if what == "time" else f"{value:,.0f} {what}"


def over(state: State, session_limits: Mapping[str, float], now: float) -> Over | None:
    """The first limit that is reached, of the task or of its session; None when another request may be made.

    A limit of money is also reached by a request whose price nobody knows, unless tokens or steps are limited as well: it
    would be no limit."""
    system = state.system_state
    ran = _ran(state, now)
    of_task = dict.fromkeys((what for what in system.extended if what not in session_limits), 0.0) | system.budget
    of_session = {what: limit for what, limit in session_limits.items() if what != "time"}
    bounded = not {"tokens", "steps"}.isdisjoint({*of_task, *of_session})
    for scope, limits, sums in (("task", of_task, system.spent), ("session", of_session, state)):
        spent = _spent(sums, ran)
        for what, given in limits.items():
            limit = given + system.extended.get(what, 0.0)
            if spent[what] >= limit:
                return Over(what, scope, limit, spent[what])
            if what == "usd" and sums.unpriced and not bounded:
                return Over(what, scope, limit, spent[what], sums.unpriced)
    return None


def _spent(sums: Any, ran: float) -> dict[str, float]:
    """What `sums` (of a task or of a session) has used, by kind."""
    tokens = sums.input_tokens + sums.output_tokens
    return {"usd": sums.cost_usd, "tokens": float(tokens), "steps": float(sums.requests), "time": ran}


def _ran(state: State, now: float) -> float:
    """How many seconds the task has run."""
    system = state.system_state
    here = now - ev.seconds_of(system.changed_at) if system.status is TaskState.RUNNING else 0.0
    return system.ran_s + max(0.0, here)
