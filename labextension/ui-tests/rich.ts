/** A session with everything that a timeline can show, written by the engine under a clock of its own. */
import { execFileSync } from 'node:child_process';

import { python, type Lab } from './lab.js';

const PROGRAM = `
import sys
from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing.clock import FakeClock
from ipyagent_lab.testing import summarised

clock = FakeClock()
store = Store(sys.argv[1], clock=clock)
session = store.create(title="Audit of the standard library", notebook="audit.ipynb")
task = f"{session.id}.1"
log = session.append(this_process(by="tests"))

def emit(kind, body, activity=None, after=0.0, **more):
    clock.advance(after)
    return log.emit(kind, body, task_id=task, activity_id=activity, **more)

def step(activity, name, seconds, kind="step", fail="", attempt=None):
    emit("ActivityStarted", p.ActivityStarted(name, kind, stage=activity.rpartition("/")[0]), activity, attempt=attempt)
    if fail:
        emit("ActivityFailed", p.ActivityFailed(name, "TimeoutError", fail, kind), activity, after=seconds)
    else:
        emit("ActivityCompleted", p.ActivityCompleted(name, kind), activity, after=seconds, execution_time_ms=seconds * 1000)

def stage(number, name, work):
    emit("ActivityStarted", p.ActivityStarted(name, "stage"), number)
    work()
    emit("ActivityCompleted", p.ActivityCompleted(name, "stage"), number)
    emit("CheckpointCreated", p.CheckpointCreated("stage", number))

def scan():
    for n in range(6):
        step(f"1/list:{n}", "list", 4 + n)
    step("1/plan", "claude", 18, "model")
    step("1/read_file:a", "read_file", 3, "tool")

def analyse():
    for wave in range(4):
        names = [f"2/analyse:{wave}-{n}" for n in range(3)]
        for name in names:
            emit("ActivityStarted", p.ActivityStarted("analyse", "step", stage="2"), name, after=0.4)
        for n, name in enumerate(names):
            emit("ActivityCompleted", p.ActivityCompleted("analyse"), name, after=9 + 4 * n)
        step(f"2/ask:{wave}", "claude", 11, "model")
    emit("ActivityStarted", p.ActivityStarted("analyse", "step", stage="2"), "2/analyse:email")
    emit("ActivityRetried", p.ActivityRetried("analyse", "TimeoutError", "no answer in 30 s", 5), "2/analyse:email", after=30, attempt=1)
    emit("ActivityCompleted", p.ActivityCompleted("analyse"), "2/analyse:email", after=24)
    emit("FileWritten", p.FileWritten("report.md", "0" * 64, 2048))
    step("2/grep:x", "grep", 6, "tool")
    step("2/analyse:ctypes", "analyse", 20, fail="no answer in 20 s")

emit("TaskQueued", p.TaskQueued("lib:audit", title="Audit of the standard library"), actor="user")
emit("TaskStarted", p.TaskStarted())
stage("1", "scan", scan)
fork_at = log.state.seq
stage("2", "collections, asyncio, email", analyse)
asked = p.ApprovalRequested("a1", "delete_files", as_raw({"paths": ["build/", "dist/"]}), "d1", if_ignored="denied at 18:40 if ignored")
emit("ApprovalRequested", asked, "3/approve")
emit("TaskSuspended", p.TaskSuspended("approval", "delete_files"))
log.barrier()
log.close()
summarised(session)
child = session.fork(fork_at, direction="skip ctypes", title="skip ctypes")
print(session.id)
`;

/** Make it in the store of `lab`; returns its id. */
export function rich(lab: Lab): string {
  return execFileSync(python, ['-P', '-c', PROGRAM, lab.store], { encoding: 'utf8' }).trim();
}
