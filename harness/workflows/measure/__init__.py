"""Measurements: what enforcement costs, what a kernel's repair of an access costs, whether both tiers agree.

It imports everything below `workflows`, and `harness.workflows.target_setup`.
Begin with `overhead_run`; each pair of modules is a measurement and the arithmetic of its figures. What servers cost
has more: `cost_document` are its records, `server_cost` its arithmetic, `cost_comparison` compares two servers, and
`server_cost_tables` shows them.
"""
