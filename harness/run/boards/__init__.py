"""Servers on a board: a machine of the user's, which commands such as ssh reach.

It imports `build`, `plan`, `record` and `core`.
Begin with `remote_shell`; `board_guest` is a server there.
"""
