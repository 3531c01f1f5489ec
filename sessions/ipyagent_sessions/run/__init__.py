"""Makes things happen: workflows and activities, executed so that what completed is never executed again.

definitions   @workflow, @activity, Retry: what a person declares
identity      what makes an activity the same one after a restart
task          one execution of a task under a lease: its log, what is open, whether it is asked to stop
execute       one activity: intent, attempts, result; threads and process are where functions run
settle        calls that started and have no result: run again, verify, or ask
context       `ctx`, what a workflow's body may call; made of naming, recall, large, stages, checked, waiting, calls
checked       a part that is rolled back and tried again until its check says yes; notes is what its files hold
undoing       declared compensations, in reverse order
beginning     queued, started, or found and going on
attending     requests of people and the passing of time, while it runs
frames        where a body failed
ending        completed, failed, cancelled, compensated
runner        one execution from its first event to its last
worker        an execution on a thread of its own, and the handle to it
launch        start a task, or continue the one that the same call started before
control       what people ask of a task, and what is logged when nobody holds the lease; answers is that of a person
pulse         heartbeat, live.json, inbox; ticker is the one thread in which all tasks beat
loop          the event loop of a task, light enough for hundreds that wait
triggers      when a checkpoint is due
environment   what a task ran under, and what differs now
"""
