"""Everything that can be derived is derived again and compared with what is stored; damage is named by its place.

finding   what was found, and a report of it
files     each file of a log by itself: checksums, contiguity, epochs, copies that disagree
tails     where a log ends, against what else tells how far it went
states    the state folded from the first event, against each checkpoint and the summary
blobs     large payloads: missing, changed, referenced by nothing
cached    the query cache against the logs that it was copied from
identity  the store's id, against the sessions that were made in it
whole     one session, or the store

The log is only read.  With `repair` what is derived and wrong is made anew: checkpoints, summaries, the query cache.
"""
