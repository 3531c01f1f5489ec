"""An event as one line for a person: what happened, without the form it is stored in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ipyagent_sessions.events import Event, payload_of
from ipyagent_sessions.views import formats


def line_of(event: Event) -> str:
    """What `event` says.  An unknown type is shown with its payload."""
    body = payload_of(event)
    if not isinstance(body, dict):
        return str(body)
    teller = _TELLERS.get(event.event_type)
    told = teller(body) if teller is not None else ", ".join(f"{k}: {v}" for k, v in body.items())
    took = f" in {formats.duration(event.execution_time_ms / 1000)}" if event.execution_time_ms is not None else ""
    return told + took


def steps_of(event: Event) -> list[tuple[str, str]]:
    """The steps of a recovery, each with what it came to; nothing for another event."""
    steps = payload_of(event).get("steps") if event.event_type == "RecoveryCompleted" else None
    return [(str(step), str(came_to)) for step, came_to in steps.items()] if isinstance(steps, dict) else []


def _started(body: dict[str, Any]) -> str:
    if body.get("kind") == "stage":
        return f"stage {body['name']}"
    if body.get("kind") == "sleep":
        return f"sleeps until {body.get('until')}"
    effect = "" if body.get("effect", "none") == "none" else f", {body['effect']}"
    return f"{body['name']}{effect}"


def _completed(body: dict[str, Any]) -> str:
    if body.get("kind") == "note":
        return "files noted"
    if body.get("kind") == "value":
        return f"{body['name']} = {body.get('result')}"
    if body.get("result_lost"):
        return f"done, its result is lost: {body['result_lost']}"
    return (
        f"{'stage ' + body['name'] if body.get('kind') == 'stage' else body['name']} done{' late' if body.get('late') else ''}"
    )


def _failed(body: dict[str, Any]) -> str:
    still = ", still running" if body.get("still_running") else ""
    return f"{body['error_type']}: {body['error']}{still}"


def _message(body: dict[str, Any]) -> str:
    calls = f" calls {', '.join(body['tools'])}" if body.get("tools") else ""
    cut = " (cut short)" if body.get("partial") else ""
    return f"{body['role']}{cut}: {body.get('text', '')}{calls}"


def _written(body: dict[str, Any]) -> str:
    by = f" by {body['tool']}" if body.get("tool") else ""
    held = f" ({formats.size(body.get('size'))})" if body.get("checksum") else " removed"
    return f"{body['path']}{held}{by}{', its former content is kept' if body.get('before') else ''}"


def _resumed(body: dict[str, Any]) -> str:
    gone = f"; not restored: {', '.join(body['not_restored'])}" if body.get("not_restored") else ""
    return f"after {body.get('cause', '')}{'; ' + body['instruction'] if body.get('instruction') else ''}{gone}"


def _running(body: dict[str, Any]) -> str:
    return f"; still running: {', '.join(body['still_running'])}" if body.get("still_running") else ""


def _cancelled(body: dict[str, Any]) -> str:
    told = [str(body["reason"])] if body.get("reason") else []
    lists = {
        "compensated": "undone",
        "compensations_pending": "not undone",
        "needs_person": "undoing failed, a person is needed",
    }
    told += [f"{words}: {', '.join(body[key])}" for key, words in lists.items() if body.get(key)]
    return ("; ".join(told) + _running(body)).removeprefix("; ")


def _progressed(body: dict[str, Any]) -> str:
    far = f"{body.get('done', 0)} of {body.get('total') or 'unknown'}" if body.get("done") or body.get("total") else ""
    return f"{far} {body.get('text', '')}".strip()


def _control(body: dict[str, Any]) -> str:
    refused = f" refused: {body.get('reason')}" if body.get("outcome") == "refused" else ""
    args = ", ".join(f"{k}={v}" for k, v in (body.get("args") or {}).items() if v not in (None, "", []) and k != "digest")
    return f"{body['action']}{refused}{f' ({args})' if args else ''}"


_TELLERS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "SessionCreated": lambda b: str(b.get("title", "")),
    "SessionForked": lambda b: (
        f"from {b['parent_session']} at {b['parent_seq']}{': ' + b['direction'] if b.get('direction') else ''}"
    ),
    "TaskQueued": lambda b: f"{b['target'].rpartition(':')[2]}{', a rerun of ' + b['rerun_of'] if b.get('rerun_of') else ''}",
    "TaskStarted": lambda b: "started",
    "TaskSuspended": lambda b: f"{b['reason']}: {b.get('detail', '')}",
    "TaskInterrupted": lambda b: (
        f"{len(b.get('drained', []))} finished first, {len(b.get('aborted', []))} stopped{_running(b)}"
    ),
    "TaskResumed": _resumed,
    "TaskCompleted": lambda b: "completed",
    "TaskFailed": lambda b: f"{b['error_type']}: {b['error']}",
    "TaskCancelled": _cancelled,
    "ActivityStarted": _started,
    "ActivityProgressed": _progressed,
    "ActivityCompleted": _completed,
    "ActivityFailed": _failed,
    "ActivityRetried": lambda b: f"{b['error_type']}: {b['error']}; again in {formats.duration(b.get('wait_s', 0.0))}",
    "ActivityCompensated": lambda b: f"undone: {b['name']}" if b.get("ok", True) else f"undoing failed: {b.get('error')}",
    "StateChanged": lambda b: f"{b['path']} {'+=' if b.get('op') == 'append' else '='} {b.get('value')}",
    "ApprovalRequested": lambda b: f"{b['approval_id']}: {b['question']}",
    "ApprovalResolved": lambda b: (
        f"{b['approval_id']} {b.get('choice') or b['answer']} by {b.get('by')}{': ' + b['reason'] if b.get('reason') else ''}"
    ),
    "FileWritten": _written,
    "FileRolledBack": lambda b: f"{b['path']} {'is back' if b.get('checksum') else 'is removed: it was not there before'}",
    "CheckFailed": lambda b: str(b["sentence"]),
    "EffectDeclared": lambda b: f"{b['what']} {b['name']}{': ' + b['note'] if b.get('note') else ''}",
    "FileRead": lambda b: str(b.get("path", "")),
    "PictureMade": lambda b: str(b.get("media_type", "")),
    "ProcessStarted": lambda b: f"{b.get('command', '')} (pid {b.get('pid')})",
    "ProcessEnded": lambda b: f"{b.get('command', '')} (pid {b.get('pid')})",
    "MessageAdded": _message,
    "BudgetExceeded": lambda b: f"{b['scope']}: {b['what']} {b['spent']:g} of {b['limit']:g}",
    "CheckpointCreated": lambda b: f"{b.get('label') or ''} {b['trigger']}".strip(),
    "RecoveryCompleted": lambda b: str(b.get("sentence", "")),
    "ControlRequested": _control,
    "AlarmRaised": lambda b: f"{b['kind']}: {b['text']}",
}
