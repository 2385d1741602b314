"""Checks a board's file step by step, and writes a new one.

It imports `run`, `plan` and `core`.
Begin with `board_check`.
"""
