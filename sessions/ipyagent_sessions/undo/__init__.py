"""What the tasks of a session did to the world, as the log tells it, and how the files among it are brought back.

ledger    a pure function from events to effects, each with its state
files     brings files back to what they held, and never over a later edit by a person
merging   three-way merges of texts, and the differences that a person is shown
"""
