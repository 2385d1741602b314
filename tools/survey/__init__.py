"""A survey of Debian's source packages: what `plumb deb` says of each on two targets.

`rule` chooses the packages, `document` owns measurements/survey*.json and survey.toml, `reasons` finds in a build's
output why it failed, `page` makes the table of docs/PROGRAMS.md, and `python -m tools.survey` chooses and asks.
"""
