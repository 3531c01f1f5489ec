"""A session on its way to another place, and back.

archive   what an archive holds, and what none may hold
pack      a session, the part of its ancestors that it needs, and their blobs, into one archive
unpack    an archive into a store, where the session is in replay
lines     its events as JSON, one a line
atif      its story as an agent trajectory
notebook  its story as a notebook
values    recorded results as a notebook shows them
"""
