"""The project's own tests and commands in odd folders, as odd users, with odd settings and beside other load.

`python -m tools.odd_places` runs them. `runs` names the runs, `place` makes a clone and the folders beside it, `start`
applies the settings of one process, and `trial` runs the tests of a clone and looks for the setting that fails them.
"""
