"""Shows a finding again: starts its server or unit, sends its requests, and returns one of three outcomes.

It imports everything below `workflows`, and `harness.workflows.target_setup`. Begin with `replay`; `recurrence` decides
between reproduced, gone and unknown. `tree_replay` builds and runs, the modules of `reruns` observe, and
`named_observation` names the functions in the records.
"""
