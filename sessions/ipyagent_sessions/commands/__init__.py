"""The commands, once for all doors: `%agent` in a notebook and `ipyagent` in a terminal parse, call, and show the same things.

door        who asks, from where, and what is at hand there
parser      the words a command line may have
dispatch    from these words to the function that does it
targets     from a name to the workflow, and from text to its arguments
code        somebody's modules and cells, run to find what a target names
look        ls, status, log, state, checkpoints, replay, sql: nothing is changed
ask         pause, cancel, approve, deny, checkpoint, rename: left for the holder, or logged here
start       run, resume, rerun, fork: what makes tasks
converse    %%agent: one turn of a conversation
back        rollback
outside     effects
check       doctor, config
equipment   models, tools
health      verify, gc, delete
carry       export, import
shared      memory: what sessions share
follow      watch a foreground task until it ends
supervise   a command of the terminal in a process of its own, started again when that dies
"""
