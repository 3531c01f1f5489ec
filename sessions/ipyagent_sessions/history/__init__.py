"""History: the logs of a store as tables.

sql       one SELECT over all sessions
result    what it gave: a table, for people and for programs
guard     why it can only be a SELECT
views     the tables that a query sees, as SQL
base      what the views stand on
tables    the tables and views of one connection
sources   which files and tails of journals feed a query
cache     events of resting sessions in few large files
building  copies them there, behind an answer
"""
