"""History: the logs of a store as tables.

sql      one SELECT over all sessions, and its result
guard    why it can only be a SELECT
sources  which files and tails of journals feed a query
views    the tables that a query sees, as SQL
columns  events as Arrow columns
"""
