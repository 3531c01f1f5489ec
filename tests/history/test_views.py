"""Each view says what the log says, and agrees with the folded state."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from tests.history.conftest import Script

from ipyagent_sessions import from_document
from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import as_raw, seconds_of
from ipyagent_sessions.history import building, tables
from ipyagent_sessions.history.sql import query
from ipyagent_sessions.history.views import VIEWS
from ipyagent_sessions.lifecycle import LOST, TaskState
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.format import line_of
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, History, emit

Ask = Callable[[str], list[tuple[Any, ...]]]


@pytest.mark.usefixtures("rich")
@pytest.mark.parametrize("view", [view.name for view in VIEWS])
def test_every_view_has_rows_and_documents_only_columns_it_has(store: Store, view: str) -> None:
    found = query(store, f"FROM {view}")
    assert len(found) > 0
    documented = next(v for v in VIEWS if v.name == view).columns
    assert set(documented) <= set(found.columns)


def test_a_query_is_given_the_views_that_its_own_stand_on(store: Store) -> None:
    for view in VIEWS:
        assert query(store, f'select count(*) from "{view.name.upper()}"').rows()
    listed = {row["name"] for row in query(store, "SHOW TABLES").rows()}
    assert listed >= {view.name for view in VIEWS}


def test_every_view_of_an_empty_store_is_empty(store: Store) -> None:
    for view in VIEWS:
        found = query(store, f"FROM {view.name}")
        assert (len(found), found.problems) == (0, [])


def test_events_are_those_of_the_log_with_the_derived_fields(ask: Ask, session: Session, rich: Appender) -> None:
    rows = ask("SELECT event_id, seq, event_type, workflow_id, activity_id, parent_event, payload FROM events ORDER BY seq")
    log = list(session.events())
    assert [row[1:6] for row in rows] == [(e.seq, e.event_type, e.task_id, e.activity_id, e.parent_event) for e in log]
    assert [row[0] for row in rows] == [f"{session.id}:{e.seq}" for e in log]
    assert [row[6] for row in rows] == [bytes(e.payload).decode() for e in log]


USES = (
    "SELECT len(triggered_events) FROM events",
    'SELECT "TRIGGERED_EVENTS" FROM events',
    "SELECT e.triggered_events FROM events AS e",
    "FROM events",
    "SELECT * EXCLUDE (payload) FROM events",
    "SELECT e.* FROM events e",
    "SELECT e FROM events e",
    "SELECT hash(events) FROM events",
    "SELECT to_json(x) FROM events x",
    "SELECT COLUMNS('.*ed_events') FROM events",
    "SELECT #14 FROM events",
    "SELECT n FROM events e(a, b, c, d, f, g, h, i, j, k, l, m, o, n)",
    "WITH t AS (TABLE events) SELECT t FROM t",
    "SELECT x.seq FROM events x NATURAL JOIN events y",
    "SELECT seq FROM events x JOIN events y USING (event_id, seq, triggered_events)",
    "SELECT seq FROM events WHERE event_id IN (SELECT unnest(triggered_events) FROM events)",
    "SELECT seq FROM events ORDER BY len(triggered_events), seq",
    "SELECT max(seq) FROM events GROUP BY len(triggered_events)",
    "SELECT k FROM (UNPIVOT (SELECT seq, triggered_events FROM events) ON triggered_events) u(s, k, v)",
    "FROM lineage((SELECT min(session_id) FROM sessions))",
)


@pytest.mark.parametrize("sql", USES)
def test_what_was_caused_is_there_for_every_way_to_ask_for_it(store: Store, rich: Appender, sql: str) -> None:
    def found() -> list[str]:
        return sorted(str(row) for row in query(store, sql).rows())

    rich.close(rest=True)
    loose = found()
    settled = time.time() - 100
    for path in store.sessions_folder.iterdir():
        os.utime(path, (settled, settled))
    assert building.step(store) == 1
    assert found() == loose, "the cache holds them as a column"


@pytest.mark.usefixtures("rich")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT event_type, count(*) AS n, sum(cost_usd) FROM events GROUP BY 1 ORDER BY n DESC",
        "SELECT e.seq AS events, e.payload->>'$.name' FROM events e JOIN events f USING (session_id, seq)",
        "WITH t AS (SELECT seq, actor FROM events) SELECT count(DISTINCT t.actor) FROM t",
    ],
)
def test_a_query_that_does_not_ask_for_it_does_not_pay_for_it(store: Store, monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    monkeypatch.setattr(tables, "TOLD", "SELECT nothing_like_that FROM base.loose")
    assert query(store, sql).rows()


def test_a_record_of_the_documents_is_queryable_by_its_fields(ask: Ask, store: Store) -> None:
    session = store.create()
    record = {
        "event_id": "evt_20260323_001",
        "event_type": "CodeGenerated",
        "timestamp": "2026-03-23T10:05:23.456Z",
        "activity_id": "act_generate_auth",
        "payload": {"files_generated": [{"path": "src/auth/login.ts", "lines": 45}], "test_coverage": 85},
        "metadata": {"agent_version": "codex-2026-03", "execution_time_ms": 12500},
    }
    event = from_document(record, seq=session.last_seq() + 1, recorded_at="2026-03-23T10:05:24.000Z")
    with open(session.layout.journals()[-1].path, "ab") as journal:
        journal.write(line_of(event))
    assert ask(
        "SELECT activity_id, agent_version, execution_time_ms, payload->>'$.files_generated[0].path',"
        " payload->>'$.document.event_id' FROM events WHERE agent_version LIKE 'codex%'"
    ) == [("act_generate_auth", "codex-2026-03", 12500.0, "src/auth/login.ts", "evt_20260323_001")]


@pytest.mark.usefixtures("rich")
def test_triggered_events_is_the_inverse_of_parent_event(ask: Ask) -> None:
    pairs = ask("SELECT event_id, unnest(triggered_events) FROM events")
    assert pairs == ask(
        "SELECT session_id || ':' || parent_event, event_id FROM events WHERE parent_event IS NOT NULL ORDER BY seq"
    )
    assert pairs


def test_a_later_recording_keeps_both_times(ask: Ask, appender: Appender, clock: FakeClock) -> None:
    appender.emit("Noted", {}, ignorable=True, timestamp=clock.now() - 5)
    appender.barrier()
    assert ask("SELECT date_diff('ms', timestamp, recorded_at), ignorable FROM events WHERE event_type = 'Noted'") == [
        (5000, True)
    ]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_tasks_and_sessions_agree_with_the_folded_state_of_any_history(
    ask: Ask, store: Store, me: Holder, clock: FakeClock, seed: int, sealed: bool
) -> None:
    appender = store.create(title="any").append(me)
    session = store.session(appender.layout.root.name)
    for item in islice(History(random.Random(seed)), 1, 260):
        clock.advance(0.25)
        emit(appender, item)
    appender.barrier()
    if sealed:
        appender.close(rest=True)
    state = session.state()
    run = state.system_state
    assert ask("SELECT task_id, state, queued IS NOT NULL, ended IS NULL FROM tasks ORDER BY queued") == [
        (task_id, task.status, True, task.ended_at is None) for task_id, task in state.tasks.items()
    ]
    (row,) = ask("""SELECT s.title, s.state, events, s.tasks, input_tokens, round(cost_usd, 6), attempts, ran_s
                    FROM sessions s JOIN tasks USING (session_id, task_id)""")
    ran = run.ran_s
    if run.status is TaskState.RUNNING:
        ran += seconds_of(state.updated_at) - seconds_of(run.changed_at)
    assert row == (
        "any",
        run.status,
        state.seq,
        len(state.tasks),
        state.input_tokens,
        round(state.cost_usd, 6),
        run.attempt,
        pytest.approx(ran, abs=0.002),
    )
    results = {i: r for i, r in state.business_state.results.items() if r.kind != "emit"}
    done = ask(f"""SELECT activity_id, state = 'completed', ended_seq FROM activities
                   WHERE task_id = '{run.task_id}' AND kind <> 'stage' AND state <> 'open' ORDER BY activity_id""")
    assert done == sorted((i, r.ok, r.seq) for i, r in results.items())
    open_now = ask(
        f"SELECT activity_id, attempts FROM activities WHERE task_id = '{run.task_id}' AND kind <> 'stage' AND state = 'open'"
    )
    assert sorted(open_now) == sorted((i, a.attempt) for i, a in state.execution_state.active_activities.items())
    if sealed:
        return
    appender.close()


def test_tasks_say_why_and_how_long(ask: Ask, rich: Appender, session: Session) -> None:
    first, second = ask("SELECT task_id, title, target, state, reason, detail, attempts, retry_of FROM tasks ORDER BY queued")
    assert first == (f"{session.id}.1", "Migrate", "jobs:migrate", "failed", "error", "ValueError: no such bucket", 2, None)
    assert second == (f"{session.id}.2", "Migrate", "jobs:migrate", "completed", None, None, 1, f"{session.id}.1")
    (ran,) = ask("SELECT ran_s FROM tasks WHERE state = 'failed'")
    (whole,) = ask("SELECT date_diff('ms', started, ended) / 1000 FROM tasks WHERE state = 'failed'")
    assert ran[0] == whole[0] - 62, "the wait for the answer does not count"


@pytest.mark.usefixtures("rich")
def test_activities_have_one_row_each_with_attempts_and_last_outcome(ask: Ask) -> None:
    rows = ask("""SELECT activity_id, kind, key, effect, state, attempts, execution_time_ms, error FROM activities
                  WHERE task_id LIKE '%.1' ORDER BY started_seq""")
    assert rows == [
        ("1/scan:1", "step", "1", "none", "completed", 1, 5.0, None),
        ("1/convert:a", "step", "a", "idempotent", "completed", 2, 40.0, None),
        ("2/upload:1", "step", None, "irreversible", "failed", 1, 7.0, "no such bucket"),
        ("2/ask:1", "model", "1", "none", "completed", 1, 900.0, None),
        ("2/search:1", "tool", "1", "none", "completed", 1, 120.0, None),
    ]


def test_an_aborted_activity_is_open_until_a_person_says_that_it_happened(
    ask: Ask, appender: Appender, session: Session
) -> None:
    task, made = f"{session.id}.1", "1/pay:1"

    def state() -> list[tuple[Any, ...]]:
        appender.barrier()
        return ask("SELECT state, ended IS NULL, error FROM activities")

    appender.emit("TaskQueued", p.TaskQueued("t"), task_id=task)
    appender.emit(
        "ActivityStarted", p.ActivityStarted("pay", effect="irreversible"), task_id=task, activity_id=made, attempt=1
    )
    assert state() == [("open", True, None)]
    appender.emit(
        "ActivityFailed", p.ActivityFailed("pay", "Aborted", "stopped", aborted=True), task_id=task, activity_id=made
    )
    assert state() == [("open", True, "stopped")]
    appender.emit("ApprovalRequested", p.ApprovalRequested("a1", "Did it?", kind="outcome", about=[made]), task_id=task)
    assert state() == [("open", True, "stopped")]
    appender.emit("ApprovalResolved", p.ApprovalResolved("a1", "allowed", "happened"), task_id=task)
    assert state() == [("completed", False, None)]


@pytest.mark.usefixtures("rich")
def test_an_approval_shows_the_first_answer_and_the_wait(ask: Ask) -> None:
    assert ask("SELECT approval_id, question, state, answer, answered_by, waited_s, details FROM approvals") == [
        ("a1", "Delete?", "answered", "approved", "user:anna", 61.0, '{"files":3}')
    ]


@pytest.mark.usefixtures("rich")
def test_the_smaller_views(ask: Ask) -> None:
    assert ask("SELECT role, text FROM messages") == [("user", "hello")]
    assert ask("SELECT tool, state, args, result FROM tool_calls") == [("search", "completed", '{"n":1}', '{"ok":1}')]
    assert ask("SELECT trigger, label FROM checkpoints") == [("stage", "1")]
    assert ask("SELECT path, size, lines FROM artifacts ORDER BY seq") == [("out/a.txt", 12, None), ("b.py", None, 9)]
    assert ask("SELECT name, kind, input_tokens, cost_usd FROM usage") == [("ask", "model", 100, 0.02)]
    assert ask("SELECT what, error_type, error, cause FROM failures ORDER BY seq") == [
        ("activity", "ValueError", "no such bucket", "error"),
        ("error", "Warning", "odd", None),
        ("task", "ValueError", "no such bucket", "error"),
    ]
    assert ask("SELECT name, attempt, error_type, wait_s FROM retries") == [("convert", 1, "OSError", 2.0)]


def test_running_with_a_free_lease_is_lost_in_both_views(ask: Ask, session: Session, me: Holder) -> None:
    assert ask("SELECT state, effective_state, notebook FROM sessions") == [(None, "empty", "a.ipynb")]
    appender = session.append(me)
    appender.emit("TaskQueued", p.TaskQueued("t"), task_id="t.1")
    appender.emit("TaskStarted", p.TaskStarted(), task_id="t.1")
    appender.barrier()
    both = "SELECT s.state, s.effective_state, t.effective_state FROM sessions s JOIN tasks t USING (session_id)"
    assert ask(both) == [("running", "running", "running")]
    appender.abandon()
    assert ask(both) == [("running", LOST, LOST)]
    session.layout.summary.unlink()
    assert session.effective_state() == LOST


def test_a_rename_changes_the_title(ask: Ask, appender: Appender) -> None:
    appender.emit("ControlRequested", p.ControlRequested("c1", "rename", args={"title": "better"}))
    appender.emit("ControlRequested", p.ControlRequested("c2", "rename", "refused", args={"title": "worse"}))
    appender.barrier()
    assert ask("SELECT title FROM sessions") == [("better",)]


# Forks


def test_a_fork_shares_its_prefix_and_counts_only_its_own(
    ask: Ask, store: Store, session: Session, rich: Appender, me: Holder
) -> None:
    at = ask("SELECT max(seq) FROM events WHERE event_type = 'TaskResumed'")[0][0]
    before = ask("SELECT count(*), sum(cost_usd) FROM events")
    child = session.fork(at)
    assert ask("SELECT count(*), count(DISTINCT event_id) FROM events") == [(before[0][0] + 1, before[0][0] + 1)]
    assert ask("SELECT sum(cost_usd) FROM sessions") == [(before[0][1],)]
    assert ask(f"SELECT state, effective_state, parent, parent_seq, events FROM sessions WHERE session_id = '{child.id}'") == [
        ("suspended", "suspended", session.id, at, 1)
    ]
    line = ask(f"SELECT session_id, seq, inherited FROM lineage('{child.id}')")
    assert line == [(session.id, seq, True) for seq in range(1, at + 1)] + [(child.id, at + 1, False)]
    assert [seq for _, seq, _ in line] == [e.seq for e in child.events()]
    appender = child.append(me)
    task = f"{child.id}.1"
    tasks = f"SELECT task_id, state, reason, target, attempts FROM tasks WHERE session_id = '{child.id}'"
    assert ask(tasks) == [(task, "suspended", "forked", "jobs:migrate", 2)]
    appender.emit("TaskResumed", p.TaskResumed(3), task_id=task)
    appender.emit("TaskCompleted", p.TaskCompleted(), task_id=task)
    appender.close()
    assert ask(tasks) == [(task, "completed", None, "jobs:migrate", 3)]
    assert list(child.state().tasks) == [task]
    assert ask(f"SELECT state FROM tasks WHERE session_id = '{session.id}' ORDER BY queued") == [("failed",), ("completed",)]
    assert child.state().system_state.status == "completed"


def test_a_fork_of_a_fork_goes_through_three_files_of_history(ask: Ask, session: Session, rich: Appender) -> None:
    end = session.last_seq()
    grandchild = session.fork(end).fork()
    rows = ask(f"SELECT session_id, seq FROM lineage('{grandchild.id}')")
    assert [seq for _, seq in rows] == list(range(1, end + 3))
    assert len({owner for owner, _ in rows}) == 3
    assert ask(f"SELECT state, title FROM sessions WHERE session_id = '{grandchild.id}'") == [("completed", "test (fork)")]


def test_an_approval_that_a_fork_inherited_is_answered_there_only(
    ask: Ask, session: Session, appender: Appender, me: Holder
) -> None:
    appender.emit("TaskQueued", p.TaskQueued("t"), task_id="t.1")
    appender.emit("ApprovalRequested", p.ApprovalRequested("a1", "Go?", as_raw({})), task_id="t.1")
    appender.barrier()
    child = session.fork()
    other = child.append(me)
    other.emit("ApprovalResolved", p.ApprovalResolved("a1", "allowed"), task_id="t.1")
    other.close()
    assert ask("SELECT session_id, question, state FROM approvals ORDER BY state DESC") == [
        (session.id, "Go?", "pending"),
        (child.id, "Go?", "answered"),
    ]


def test_the_audit_names_who_when_and_why(ask: Ask, rich: Appender, session: Session) -> None:
    rows = ask("SELECT action, who, why FROM audit ORDER BY seq")
    assert ("run", "user:anna", "jobs:migrate") in rows
    assert ("retry", "engine", "1/convert:a OSError busy") in rows
    assert ("answer", "user:anna", "a1: approved") in rows
    assert ("resume", "engine", "answered") in rows
    assert ("run", "user:anna", f"jobs:migrate retry of {session.id}.1") in rows
    assert ask("SELECT sum(cost_usd) FROM audit WHERE action = 'spend'") == ask("SELECT sum(cost_usd) FROM usage")


def test_a_request_that_was_refused_is_in_the_audit_with_its_reason(ask: Ask, appender: Appender) -> None:
    for outcome, reason, args in (("refused", "too late", {}), ("accepted", "", {"reason": "enough"})):
        body = p.ControlRequested("c1", "cancel", outcome, reason, args)
        appender.emit("ControlRequested", body, actor="user:bob")
    appender.barrier()
    assert ask("SELECT action, who, why FROM audit WHERE who = 'user:bob' ORDER BY seq") == [
        ("cancel", "user:bob", "refused: too late"),
        ("cancel", "user:bob", "accepted: enough"),
    ]


def test_a_file_leads_back_to_the_prompt_that_caused_it(ask: Ask, appender: Appender, session: Session, me: Holder) -> None:
    def say(role: str, text: str, task: str, **more: str) -> int:
        return appender.emit("MessageAdded", {"role": role, "text": text, **more}, task_id=task).seq

    def write(path: str, task: str) -> None:
        appender.emit("FileWritten", p.FileWritten(path, "sha256:0", tool="write_file"), task_id=task)

    appender.emit("TaskQueued", p.TaskQueued("agent"), task_id="t1")
    first = say("user", "make a plot", "t1")
    say("assistant", "I plot", "t1", model="m-1")
    write("plot.py", "t1")
    say("user", "and a table", "t1")
    write("early.csv", "t1")
    say("assistant", "I tabulate", "t1", model="m-2")
    write("table.csv", "t1")
    appender.emit("TaskCompleted", p.TaskCompleted(), task_id="t1")
    appender.emit("TaskQueued", p.TaskQueued("m:f", args=as_raw({"n": 1})), task_id="t2")
    write("of a workflow", "t2")
    appender.barrier()
    assert ask("SELECT path, tool, prompt, model, said FROM provenance ORDER BY seq") == [
        ("plot.py", "write_file", "make a plot", "m-1", "I plot"),
        ("early.csv", "write_file", "and a table", None, None),
        ("table.csv", "write_file", "and a table", "m-2", "I tabulate"),
        (None, None, "and a table", "m-2", "I tabulate"),
        ("of a workflow", "write_file", 'm:f {"n":1}', None, None),
    ]
    assert ask("SELECT prompt_event FROM provenance WHERE path = 'plot.py'") == [(f"{session.id}:{first}",)]
    child = session.fork(first)
    forked = child.append(me)
    forked.emit("FileWritten", p.FileWritten("of a fork", "sha256:0"), task_id=f"{child.id}.1")
    forked.close()
    found = ask("SELECT session_id, prompt, prompt_event FROM provenance WHERE path = 'of a fork'")
    assert found == [(child.id, "make a plot", f"{session.id}:{first}")], "the prompt is the parent's"


def test_what_a_person_said_of_one_call_is_not_taken_for_another(
    ask: Ask, session: Session, appender: Appender, clock: FakeClock
) -> None:
    script = Script(appender, clock, f"{session.id}.1")
    script.start()
    names = [f"main/pay:{key}" for key in "ABCD"]
    for name in names:
        script.emit("ActivityStarted", p.ActivityStarted("pay", effect="irreversible"), activity_id=name, attempt=1)
    choices = ["happened", "run_again"]
    script.emit("ApprovalRequested", p.ApprovalRequested("a1", "Did it?", kind="outcome", choices=choices, about=names))
    for choice, about, partial in (("run_again", names[:1], True), ("happened", names[1:2], True), ("run_again", [], False)):
        said = p.ApprovalResolved("a1", "approved", choice=choice, about=about, partial=partial)
        script.emit("ApprovalResolved", said, actor="user:anna")
    script.emit("ApprovalResolved", p.ApprovalResolved("a1", "approved", choice="happened"), actor="user:late")
    appender.barrier()
    states = ask("SELECT activity_id, state FROM activities ORDER BY activity_id")
    assert states == [(name, "completed" if name == names[1] else "open") for name in names]
    told = ask("SELECT name, state FROM effects ORDER BY name")
    assert told == [(name, "done" if name == names[1] else "unknown") for name in names]
    assert ask("SELECT state, answer, choice FROM approvals") == [("answered", "approved", "run_again")]


def test_the_time_until_somebody_forked_or_saw_a_loss_is_no_time_that_a_task_ran(
    ask: Ask, store: Store, session: Session, me: Holder, appender: Appender, clock: FakeClock
) -> None:
    script = Script(appender, clock, f"{session.id}.1")
    script.start()
    point = script.step("scan", 1)
    script.step("scan", 2)
    appender.close()
    clock.advance(1000)
    fork = session.fork(point)
    found = fork.append(me)
    clock.advance(5)
    found.emit("TaskResumed", p.TaskResumed(2, "forked"), task_id=fork.state().system_state.task_id)
    clock.advance(7)
    found.emit("AlarmRaised", p.AlarmRaised("x", "y"))
    clock.advance(1000)
    found.emit("TaskSuspended", p.TaskSuspended("worker_lost", "gone"), task_id=fork.state().system_state.task_id)
    found.close()
    (ran,) = ask(f"SELECT ran_s FROM tasks WHERE session_id = '{fork.id}'")
    assert ran[0] == pytest.approx(fork.state().system_state.ran_s, abs=0.002)
    assert ran[0] == pytest.approx(2 + 7, abs=0.002)
