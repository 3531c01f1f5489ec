"""Makes things happen: workflows and activities, executed so that what completed is never executed again.

definitions   @workflow, @activity, Retry: what a person declares
identity      what makes an activity the same one after a restart
context       `ctx`, what a workflow's body may call
calls         the awaitables that `ctx` hands out
execute       one activity: attempts, timeouts, threads, child processes
settle        calls that started and have no result: run again, verify, or ask
ending        completed, failed, cancelled, compensated
task          one execution of a task under a lease
worker        a task on a thread of its own, and the handle to it
control       what people ask of a task, and what is logged when nobody holds the lease
pulse         heartbeat, live.json, inbox
triggers      when a checkpoint is due
"""
