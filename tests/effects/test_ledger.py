"""The ledger says of each effect whether it was done, and what it does not know it calls unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.history.conftest import Script, appender, ask

from ipyagent_sessions import payloads as p
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import FakeClock
from ipyagent_sessions.undo.ledger import ledger, line, still_there

__all__ = ["appender", "ask"]


@pytest.fixture
def script(appender: Appender, clock: FakeClock, session: Session) -> Script:
    made = Script(appender, clock, f"{session.id}.1")
    made.start()
    return made


def start(script: Script, name: str, *, effect: str = "irreversible", kind: str = "step") -> int:
    return script.emit(
        "ActivityStarted", p.ActivityStarted(name, kind, effect=effect), activity_id=f"main/{name}#1", attempt=1
    )


def end(script: Script, name: str, event_type: str = "ActivityCompleted", **more: Any) -> int:
    if event_type == "ActivityFailed":
        given: dict[str, Any] = {"error_type": "OSError", "error": "no", **more}
        body: p.Payload = p.ActivityFailed(name, **given)
    else:
        body = p.ActivityCompleted(name) if event_type == "ActivityCompleted" else p.ActivityCompensated(name, **more)
    return script.emit(event_type, body, activity_id=f"main/{name}#1")


def write(script: Script, path: str, call: int, *, before: str | None = None) -> int:
    body = p.FileWritten(
        path, "sha256:1", 1, before=before, before_checksum=before and "sha256:0", tool="write_file", call="c"
    )
    return script.emit("FileWritten", body, parent=call)


def states(session: Session, *, running: bool = False) -> dict[str, str]:
    return {e.name: e.state for e in ledger(session.events(), running=running)}


def test_an_activity_is_done_failed_compensated_or_unknown_as_the_log_says(script: Script, session: Session) -> None:
    for name in ("sent", "broke", "undone", "stuck", "cut", "never"):
        start(script, name)
    end(script, "sent")
    end(script, "broke", "ActivityFailed")
    end(script, "undone")
    end(script, "undone", "ActivityCompensated")
    end(script, "stuck")
    end(script, "stuck", "ActivityCompensated", ok=False, error="gone")
    end(script, "cut", "ActivityFailed", aborted=True)
    end(script, "never", "ActivityFailed", aborted=True, error_type="NotRun")
    script.step("look", 1)
    script.appender.barrier()
    assert states(session) == {
        "main/sent#1": "done",
        "main/broke#1": "failed",
        "main/undone#1": "compensated",
        "main/stuck#1": "done",
        "main/cut#1": "unknown",
    }
    found = {e.name: e for e in ledger(session.events())}
    assert "undoing it failed: gone" in found["main/stuck#1"].note
    assert line(found["main/cut#1"]) == "irreversible activity main/cut#1 (unknown)"


def test_what_is_open_is_running_only_while_somebody_works_on_it(script: Script, session: Session) -> None:
    start(script, "send")
    script.appender.barrier()
    assert states(session, running=True) == {"main/send#1": "running"}
    assert states(session) == {"main/send#1": "unknown"}
    script.emit("TaskCancelled", p.TaskCancelled())
    again = Script(script.appender, script.clock, f"{session.id}.2")
    again.start()
    start(again, "send")
    script.appender.barrier()
    assert [e.state for e in ledger(session.events(), running=True)] == ["unknown", "running"]


def test_a_file_is_as_certain_as_the_call_that_writes_it(script: Script, session: Session) -> None:
    call = start(script, "write_file", effect="idempotent", kind="tool")
    seq = write(script, "a.txt", call)
    script.appender.barrier()
    assert states(session)["a.txt"] == "unknown"
    end(script, "write_file")
    script.appender.barrier()
    assert states(session)["a.txt"] == "done"
    assert [line(e) for e in still_there(ledger(session.events()))] == ["file a.txt"]
    script.emit("FileRolledBack", p.FileRolledBack("a.txt", [seq]))
    script.appender.barrier()
    assert states(session)["a.txt"] == "rolled back"
    assert still_there(ledger(session.events())) == []


def test_a_command_is_unknown_until_its_end_or_its_call_is_logged(script: Script, session: Session) -> None:
    call = start(script, "run_shell", kind="tool")
    process = {"pid": 7, "started": 1.5, "command": "make", "mark": "m"}
    script.emit("ProcessStarted", process, parent=call, ignorable=True)
    script.appender.barrier()
    assert states(session)["make"] == "unknown"
    script.emit("ProcessEnded", process, parent=call, ignorable=True)
    script.appender.barrier()
    assert states(session) == {"main/run_shell#1": "unknown", "make": "done"}
    assert [line(e) for e in still_there(ledger(session.events()))] == ["command make"]


def test_a_command_that_was_stopped_is_not_called_done(script: Script, session: Session) -> None:
    call = start(script, "run_shell", kind="tool")
    process = {"pid": 7, "started": 1.5, "command": "make", "mark": "m"}
    script.emit("ProcessStarted", process, parent=call, ignorable=True)
    script.emit("ProcessEnded", {**process, "stopped": True}, parent=call, ignorable=True)
    script.appender.barrier()
    assert states(session) == {"main/run_shell#1": "unknown", "make": "failed"}
    assert [line(e) for e in still_there(ledger(session.events()))] == ["command make (failed: stopped before its end)"]


def test_only_a_file_whose_pre_image_is_known_is_restorable(script: Script, session: Session) -> None:
    call = start(script, "write_file", effect="idempotent", kind="tool")
    write(script, "new.txt", call)
    write(script, "old.txt", call, before="0" * 64)
    script.emit(
        "FileWritten", p.FileWritten("kept.txt", "sha256:2", before_checksum="sha256:3", tool="write_file"), parent=call
    )
    script.emit("FileWritten", p.FileWritten("noted.txt", "sha256:4"))
    script.emit("CodeGenerated", {"files_generated": [{"path": "gen.py"}]})
    script.appender.barrier()
    found = {e.name: e.restorable for e in ledger(session.events()) if e.what == "file"}
    assert found == {"new.txt": True, "old.txt": True, "kept.txt": False, "noted.txt": False, "gen.py": False}


@given(st.lists(st.sampled_from(["start", "complete", "fail", "abort", "compensate"]), max_size=12))
def test_whatever_the_log_holds_one_call_is_one_effect_and_done_only_with_a_result(moves: list[str]) -> None:
    from ipyagent_sessions.events import Event, as_raw

    made = {
        "start": ("ActivityStarted", p.ActivityStarted("send", effect="irreversible")),
        "complete": ("ActivityCompleted", p.ActivityCompleted("send")),
        "fail": ("ActivityFailed", p.ActivityFailed("send", "E", "e")),
        "abort": ("ActivityFailed", p.ActivityFailed("send", "E", "e", aborted=True)),
        "compensate": ("ActivityCompensated", p.ActivityCompensated("send")),
    }
    log = [
        Event(n + 1, made[move][0], "2026-01-01T00:00:00.000Z", activity_id="main/send#1", payload=as_raw(made[move][1]))
        for n, move in enumerate(moves)
    ]
    found = ledger(log)
    assert bool(found) == ("start" in moves)
    if any(e.state == "done" for e in found):
        assert "complete" in moves
    assert sum(e.state == "unknown" for e in found) <= 1


def test_the_view_and_the_ledger_agree(script: Script, session: Session, ask: Callable[[str], list[tuple[Any, ...]]]) -> None:
    for name in ("sent", "broke", "undone", "cut", "never"):
        start(script, name)
    end(script, "sent")
    end(script, "broke", "ActivityFailed")
    end(script, "undone")
    end(script, "undone", "ActivityCompensated")
    end(script, "cut", "ActivityFailed", aborted=True)
    end(script, "never", "ActivityFailed", aborted=True, error_type="NotRun")
    call = start(script, "write_file", effect="idempotent", kind="tool")
    first, _ = write(script, "a.txt", call), write(script, "b.txt", call)
    script.emit("ProcessStarted", {"pid": 7, "started": 1.5, "command": "make", "mark": "m"}, parent=call, ignorable=True)
    script.emit("FileWritten", p.FileWritten("noted.txt", "sha256:4"))
    script.emit("FileRolledBack", p.FileRolledBack("a.txt", [first]))
    start(script, "ask", effect="idempotent", kind="model")
    end(script, "ask")
    script.appender.barrier()
    mine = [(e.seq, e.what, e.name, e.effect, e.state, e.activity, e.tool or None) for e in ledger(session.events())]
    rows = ask("SELECT seq, what, name, effect, state, activity_id, tool FROM effects ORDER BY seq")
    assert rows == sorted(mine, key=lambda row: row[0])
