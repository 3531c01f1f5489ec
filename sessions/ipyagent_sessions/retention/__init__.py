"""What goes after a while, and what goes because a person says so.

expiry      which checkpoints have outlived the policy, and why
clean       removing them, with a record of each; announced before it first happens by itself
backups     what upgrades replaced
deletion    a session, after its forks have what they share with it
workspaces  those of isolated forks: who uses them, and how they go

The log and its results never go by age: a checkpoint only saves folding, and can be made again.
"""
