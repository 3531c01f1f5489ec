/** A session of an agent as the engine's log holds it: it streams until it is told to end, and asks before it deletes. */
import { spawn, type ChildProcess } from 'node:child_process';

import { python, type Lab } from './lab.js';

const PROGRAM = `
import sys, time
from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.log.live import Live, write_live
from ipyagent_sessions.store import Store
from ipyagent_lab.testing import summarised

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
ANSWER = """## What the modules say

**email** has the highest share of functions without a docstring (38 %), most of them in \`_header_value_parser\`.

| module | functions | share |
|---|---|---|
| email | 412 | 38 % |
| asyncio | 901 | 21 % |

\`\`\`python
def share(module):
    return sum(not f.__doc__ for f in functions(module)) / len(functions(module))
\`\`\`

<img src="https://example.invalid/leak.png?what=secret"> <script>window.hacked = 1</script> [a link](javascript:alert(1))
"""

store = Store(sys.argv[1])
session = store.create(title="Which modules lack docstrings?", notebook="ask.ipynb")
task = f"{session.id}.1"
log = session.append(this_process(by="tests"))

def emit(kind, body, activity=None, **more):
    return log.emit(kind, body, task_id=task, activity_id=activity, **more)

def say(role, text, index, activity=None, message=None, **cost):
    emit("MessageAdded", p.MessageAdded(role, text, index, as_raw(message)), activity, **cost)

def call(name, args, result, kind="tool", effect="none", **cost):
    activity = f"/{name}:{log.state.seq}"
    emit("ActivityStarted", p.ActivityStarted(name, kind, effect=effect, args=as_raw([[], args])), activity)
    emit("ActivityCompleted", p.ActivityCompleted(name, kind, result=as_raw({"return": result})), activity, **cost)

emit("TaskQueued", p.TaskQueued("agent", kind="agent", title="Which modules lack docstrings?"), actor="user")
emit("TaskStarted", p.TaskStarted())
say("user", "Which modules of the standard library lack docstrings?", 0)
emit("ActivityStarted", p.ActivityStarted("model", "model"), "/first")
thought = {"kind": "response", "parts": [{"part_kind": "thinking", "content": "A query over the index will do."}], "model_name": "scripted"}
say("assistant", "I count them first.", 1, "/first", thought, input_tokens=1240, output_tokens=38, cost_usd=0.012)
emit("ActivityCompleted", p.ActivityCompleted("model", "model"), "/first", execution_time_ms=1800.0)
call("sql", {"query": "select module, count(*) from functions group by 1"}, [{"module": "email", "n": 412}, {"module": "asyncio", "n": 901}])
call("run_python", {"code": "plot()"}, {"outputs": [{"output_type": "stream", "text": "drawn"}, {"data": {"image/png": PIXEL, "text/plain": "<Figure>"}}]})
emit("ActivityStarted", p.ActivityStarted("model", "model"), "/last")
log.barrier()
summarised(session)
print(session.id, flush=True)

at = 0
while not (store.root / "enough").exists():
    at = (at + 12) % (len(ANSWER) + 400)
    write_live(session.layout, Live(task, log.epoch, time.time(), partial=ANSWER[:at] if at else ANSWER[:1], last_seq=log.state.seq), log.disk)
    time.sleep(0.1)
say("assistant", ANSWER, 2, "/last", input_tokens=2100, output_tokens=310, cost_usd=0.031)
emit("ActivityCompleted", p.ActivityCompleted("model", "model"), "/last", execution_time_ms=5200.0)
details = {"tool": "delete_files", "arguments": {"paths": ["build/", "dist/"], "force": False}, "effect": "irreversible"}
emit("ApprovalRequested", p.ApprovalRequested("a1", "Delete the folders that the build left?", as_raw(details), "d1", kind="tool", effect="irreversible"), "/delete_files:1")
emit("TaskSuspended", p.TaskSuspended("approval", "delete_files"))
log.barrier()
log.close()
summarised(session)
print("ended", flush=True)
`;

export class Agent {
  private constructor(
    readonly id: string,
    private readonly process: ChildProcess,
    private readonly store: string
  ) {}

  static async start(lab: Lab): Promise<Agent> {
    const process = spawn(python, ['-P', '-c', PROGRAM, lab.store], { stdio: ['ignore', 'pipe', 'inherit'] });
    const id = await new Promise<string>((resolve, reject) => {
      process.stdout?.once('data', (data: Buffer) => resolve(String(data).trim()));
      process.once('exit', code => reject(new Error(`it ended with ${code}`)));
    });
    return new Agent(id, process, lab.store);
  }

  /** Let it end its answer and ask; returns when it has. */
  async enough(): Promise<void> {
    const { writeFileSync } = await import('node:fs');
    const ended = new Promise(resolve => this.process.once('exit', resolve));
    writeFileSync(`${this.store}/enough`, '');
    await ended;
  }

  stop(): void {
    this.process.kill('SIGKILL');
  }
}
