"""A finding shown again: its server or unit is started, its requests are sent, and the outcome is one of three.

It imports everything below `workflows`, and `harness.workflows.target_setup`.
Begin with `replay`; `recurrence` decides between reproduced, gone and cannot tell. `tree_replay` builds and runs,
`reruns` observe, and `named_observation` names the functions in what they left.
"""
