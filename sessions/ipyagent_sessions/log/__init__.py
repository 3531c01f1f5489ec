"""The log of a session: the only code that touches session files.

format       one event as one line with a checksum, and how damaged bytes are read
layout       which file is where
files        write, sync and rename, with named seams where a test can make them fail
lease        who may append: an OS lock and an epoch
journal      the writer: append, commit, rotate
segments     sealed Parquet files
reader       the log as one sequence, from segments and journals of several epochs
checkpoints  snapshots of the state
blobs        large payloads by their sha256
inbox        control requests of people and programs
live         what is going on now; not history
"""
