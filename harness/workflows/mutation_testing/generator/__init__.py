"""Mutants by rule: the changes that typical portability bugs would make to a release, found in its syntax tree.

It imports `workflows.mutation_testing.mutations`, `analysis`, `build` and `core`. Begin with `mutants`;
`operators.toml` defines the changes, `analysis.c_source.syntax` parses, and `transformers` find sites that a query of
the syntax tree alone cannot find.
"""
