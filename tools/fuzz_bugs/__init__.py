"""How many seconds of processor `plumb fuzz` needs until it shows a bug that was planted, or made by rule.

`choice` draws the lists of bugs, `race` measures one, `document` stores and shows the results.
"""
