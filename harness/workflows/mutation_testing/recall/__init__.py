"""Recall: the share of the mutants made by rule that the suites find.

It imports everything below `workflows.mutation_testing.campaign`, and `harness.workflows.check`. Begin with
`sample_run`; `examination` handles one mutant, and `document` is the result of a run.
"""
