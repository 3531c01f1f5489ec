"""What a person sees, as pure functions of state: the same functions feed the cell, the terminal, the server and the tests.

formats   numbers, durations, ages in a person's form
card      one task as a model of what is shown (fields of R190-R201, allowed actions with their reasons)
text      a card, a list, a log as text
html      the same as static HTML, without script
story     an event as one line
compare   two sessions side by side
markdown  Markdown of a model as HTML that can do nothing
programs  data as JSON and rows as CSV, for programs
shown     text and HTML together, as commands return them
"""
