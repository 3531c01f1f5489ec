"""A session on its way to another place, and back.

archive   what an archive holds, and what none may hold
pack      a session, the part of its ancestors that it needs, and their blobs, into one archive
unpack    an archive into a store, where the session is in replay
transcripts   what another agent wrote down, into a session in replay
claude_code, codex, pi   who wrote it: lines into what was spoken
spoken    what a transcript says, whoever wrote it
retelling what was spoken, as events
lines     its events as JSON, one a line
atif      its story as an agent trajectory
otel      its story as spans of OpenTelemetry
notebook  its story as a notebook
values    recorded results as a notebook shows them
"""
