"""`%%agent`: one turn of a conversation with a model, in the session of this notebook's conversation."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from ipyagent_sessions.agent import budget, surroundings
from ipyagent_sessions.commands import targets
from ipyagent_sessions.commands.check import policy_of, settings_files
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.commands.follow import Screen
from ipyagent_sessions.commands.start import Ended, go, known, session_of
from ipyagent_sessions.errors import ControlRefused, NotFound, UsageError
from ipyagent_sessions.lifecycle import ENDED
from ipyagent_sessions.run import outage
from ipyagent_sessions.run.launch import launch
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.run.worker import TaskHandle
from ipyagent_sessions.session import Session
from ipyagent_sessions.views import formats
from ipyagent_sessions.views.shown import Shown

_BRACES: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}")
_POLL_S: Final = 0.1
_TITLE: Final = 60


def ask(door: Door, screen: Screen, options: argparse.Namespace) -> TaskHandle | Ended:
    """Send a prompt to an agent; the next one in this notebook continues the conversation.

    In the foreground returns when the turn is completed and raises TaskNotCompleted for every other end.
    """
    from ipyagent_sessions.agent import assistant

    prompt = door.without_secrets(filled(" ".join(options.prompt).strip(), door.namespace))
    if not prompt:
        raise UsageError("there is nothing to ask", hint=f'{door.prefix} ask "...", or the question below %%agent')
    named = _recorded(door, filled(options.model, door.namespace))
    before = _model_before(door, options.session)
    model = assistant.check(surroundings.here(), named, options.schema, door.store, before=before)
    given = {"model": model, "approve": options.approve, "schema": options.schema, **_check(door, options)}
    started = launch(
        door.store,
        assistant.converse,
        (prompt,),
        {name: value for name, value in given.items() if value},
        options=RunOptions(
            durability=options.durability,
            actor=door.actor,
            headless=door.headless,
            policy=policy_of(door, None),
            settings=settings_files(door),
            title=options.title or _title(prompt),
            model=model,
            budget=assistant.limits(door.folder) | budget.parse(options.budget),
            recover=outage.policy(options.recover),
        ),
        origin=door.origin,
        into=lambda: _conversation(door, screen, options.session, waits=not options.bg),
        new=options.new or options.session == "new",
    )
    if started.note:
        screen.update(Shown(started.note))
    assert started.handle is not None
    door.talk.session_id = started.session.id
    return go(door, screen, started.handle, background=options.bg)


def _check(door: Door, options: argparse.Namespace) -> dict[str, Any]:
    """The check that the turn has to pass.  Raises UsageError for options of one that is not there, and for no attempts."""
    more = {"attempts": options.attempts, "files": options.files}
    given = {name: value for name, value in more.items() if value is not None}
    if given and not options.check:
        raise UsageError(f"--{min(given)} goes with a check", hint='--check "pytest -q" --attempts 3 --files "src/**/*.py"')
    if options.attempts is not None and options.attempts < 1:
        raise UsageError(f"--attempts {options.attempts} lets nothing run", hint="a whole number from 1")
    return {"check": door.without_secrets(options.check), **given}


def filled(text: str, namespace: Mapping[str, Any] | None) -> str:
    """`text` with `{name}` replaced by the variable of that name, `{{` and `}}` by one brace.  What is no identifier stays as
    it is.  Raises UsageError for a name that is no variable."""

    def replaced(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        if namespace is None or match[1] not in namespace:
            raise UsageError(f"{{{match[1]}}}: there is no such variable", hint="write {{ for a brace that is meant as one")
        return str(namespace[match[1]])

    return _BRACES.sub(replaced, text)


def _recorded(door: Door, model: str) -> str:
    """The name of a model, with the whole id of a recorded session: `@last` and a title may mean another one later."""
    kind, _, wanted = model.partition(":")
    return f"{kind}:{door.session(wanted).id}" if kind == "cassette" and wanted else model


def _model_before(door: Door, wanted: str | None) -> str:
    """The model of the newest turn of the conversation to go on in, empty when there is none or another program asked it."""
    if wanted == "new" or not door.store.exists():
        return ""
    found = _newest_here(door) if wanted is None else known(door, wanted)
    system = found.state().system_state if found is not None else None
    return "" if system is None or targets.is_foreign(system) else system.model


def _newest_here(door: Door) -> Session | None:
    return _newest(door) if door.origin.notebook is not None else _last(door)


def _title(prompt: str) -> str:
    first = prompt.strip().splitlines()[0]
    return first if len(first) <= _TITLE else f"{first[: _TITLE - 1]}…"


def _conversation(door: Door, screen: Screen, wanted: str | None, *, waits: bool) -> Session | None:
    """The session to go on in: the one that is named, else this notebook's newest conversation (or this kernel's last one when
    no notebook is known); None for a new one.

    One whose turn runs is waited for.  Raises ControlRefused when its turn is unfinished and nobody runs it.
    """
    found = session_of(door, wanted) if wanted != "new" else None
    if found is None and wanted is None:
        found = _newest_here(door)
    if found is None:
        return None
    begun = time.monotonic()
    while (status := found.summary().state) and status not in {state.value for state in ENDED}:
        effective = found.effective_state()
        task = found.summary().task_id
        own = targets.asking(door, "new")
        if targets.is_foreign(found.state().system_state):
            raise ControlRefused(
                f"the conversation {found.id} has a turn that another program began: {task}",
                hint=f"go on with {targets.going_on(door, found)}, or start another conversation with {own}",
            )
        if effective != "running" or not waits:
            raise ControlRefused(
                f"the conversation {found.id} has a turn that is {effective}: {task}",
                hint=f"finish it with {door.prefix} resume {found.id}, end it with {door.prefix} cancel {found.id}, or start "
                f"another conversation with {own}"
                if effective != "running"
                else f"wait for it, or start another conversation with {own}",
            )
        since = formats.duration(time.monotonic() - begun)
        screen.update(Shown(f"queued behind task {task} of {found.id} ({since}); {own} does not wait"))
        time.sleep(_POLL_S)
    return found


def _last(door: Door) -> Session | None:
    """The session that the last prompt of this kernel went to."""
    if not door.talk.session_id:
        return None
    try:
        return door.store.find(door.talk.session_id)
    except NotFound:  # deleted meanwhile
        return None


def _newest(door: Door) -> Session | None:
    """The newest session of this notebook that is a conversation."""
    for listed in door.store.sessions():
        summary = listed.summary
        if summary is not None and summary.kind == "agent" and summary.notebook == door.origin.notebook:
            return door.store.session(listed.session_id)
    return None
