"""The work behind the commands: each module does one job, from plan to report, with the packages below.

It may import everything but `cli`.
Begin with `check`, the main job.
"""
