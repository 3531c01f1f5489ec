"""What a person does about the files of a session while nobody works in it: bring them back, or give a fork its own.

rollback    brings back what the tasks of a session wrote
isolation   the workspace of a fork
"""
