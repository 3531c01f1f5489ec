"""What sessions share: preferences, facts, knowledge.  Other files, another lifetime and another clean-up than sessions have.

memory   namespaces, keys, values; put, get, delete, search
journal  the file that holds them: checked lines, one writer at a time, compaction
notes    the same for an agent's tools
"""
