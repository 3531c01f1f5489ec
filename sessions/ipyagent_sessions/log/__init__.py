"""The log of a session: the only code that touches session files.

checksum         a line that carries its own checksum
format           one event as such a line, and how damaged bytes are read
layout           which file is where
files            write, sync and rename, with named seams where a test can make them fail
exclusive        one process at a time, for files that belong to the store
lease            who may append: an OS lock and an epoch
journal          the writer: append, flush, rotate
appender         the one who may append: lease, journal, and the state folded meanwhile
scribe           the slow part of writing, in threads of its own
setbacks         what failed there, as alarms, each once
sealing          from journals to segments
segments         sealed Parquet files: written, merged
segment_reader   the same read, their checksums verified
arrow, columns   events as Arrow tables, and back; columns made from buffers
open_activities  which activities are open after an event
reader           the log as one sequence, from segments and journals of several epochs
loading          the state when a session is opened, and a tail without a torn event
checkpoints      snapshots of the state
blobs            large payloads by their sha256
inbox            control requests of people and programs
witnesses        how far a log went, by what else tells
live             what is going on now; not history
"""
