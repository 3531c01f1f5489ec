"""What is told of a session and asked of it, whatever carries it: the server's routes, or the comm of a widget.

Rooms, each importing only those above it:

    problems   one table from typed errors to statuses
    shapes     what goes over the wire
    finding    ids and bodies from a page, checked
    arguments  numbers and texts behind the `?` of a request, checked
    following  the state of a watched session, kept up to date from the tail of its log
    pages      events a page at a time, the state at a point, large payloads
    branches   what a fork would mean, and two sessions side by side
    asking     what a person asks of a task
    rescue     whether a lost task goes on by itself, and how
"""
