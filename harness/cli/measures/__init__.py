"""Commands that measure: what servers, kernels and Plumbline cost, and how many planted bugs the suites find.

It imports the modules of `cli` below it, and every package.
Begin with `server_costs`; `planted_bugs` has `plumb mutate`.
"""
