"""Mutants by rule: the changes that typical portability bugs would make to a release, found in its syntax tree.

It imports `workflows.mutation_testing.mutations`, `build` and `core`. Begin with `mutants`; `operators.toml` defines
the changes, `syntax` parses, and `transformers` find sites that a query of the syntax tree alone cannot find.
"""
