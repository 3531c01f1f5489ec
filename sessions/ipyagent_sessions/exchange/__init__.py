"""A session on its way to another place, and back.

archive                 what an archive holds, and what none may hold
pack                    a session, the part of its ancestors that it needs, and their blobs, into one archive
incoming                a file that is brought in, before anything of it is read
unpack                  an archive into a store, where the session is in replay
wellformed              whether an event from elsewhere is one that this version could have written
draft                   what an import is about to add to a store, and the moment in which it appears
transcripts             what another agent wrote down, into a session in replay
claude_code, codex, pi  who wrote it: lines into what was spoken
spoken                  what a transcript says, whoever wrote it
retelling               what was spoken, as events
lines                   its events as JSON, one a line
atif                    its story as an agent trajectory
otel                    its story as spans of OpenTelemetry
notebook                its story as a notebook
values                  recorded results as a notebook shows them
"""
