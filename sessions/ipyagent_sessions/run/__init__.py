"""Makes things happen: workflows and activities, executed so that what completed is never executed again.

definitions              @workflow, @activity, Retry: what a person declares
identity                 what makes an activity the same one after a restart
task                     one execution of a task under a lease: its log, what is open, whether it is asked to stop
plan                     a call whose identity and options are settled
perform                  one activity, from what is recorded of it: its result, what a crash cut short, or nothing yet
execute                  one activity: intent, attempts, result
attempt_log              what the log is told of each attempt
threads, process, child  where functions run
inside, keys             what an activity's code can say of itself; its idempotency key
outage                   what is away or short, and is waited for
settle                   calls that started and have no result: run again, verify, or ask
context                  `ctx`, what a workflow's body may call; made of what follows
naming, recall           ids of what is called, and recorded results given back
large, shared            values too large for a line of the log, and what sessions share
stages, waiting          named parts that end in a checkpoint, and durable waits for a time or a person
calls                    what `ctx` hands out to be awaited, also several side by side
rereading                recorded results that the state does not hold, read from the log in their order
checked, notes           a part that is rolled back and tried again until its check says yes; what its files hold
undoing                  declared compensations, in reverse order
beginning, recovery      queued, started, or found and going on; what was lost
attending                requests of people and the passing of time, while it runs
frames                   where a body failed
ending, remains          completed, failed, cancelled, compensated; what it leaves behind
runner                   one execution from its first event to its last
worker                   an execution on a thread of its own, and the handle to it
launch                   start a task, or continue the one that the same call started before
control, answers         what people ask of a task, and what is logged when nobody holds the lease; what a person answers
pulse, ticker            heartbeat, live.json, inbox; the one thread in which all tasks beat
loop                     the event loop of a task, light enough for hundreds that wait
resources                how much memory and disk there is, and the alarm before they run out
triggers                 when a checkpoint is due
environment              what a task ran under, and what differs now
"""
