"""What the project's own tests notice: mutants of the harness, made by rule, and the tests that kill them.

`python -m tools.harness_mutants` draws a sample, runs for each mutant the tests that execute its place, and says which
share `ci/test --quick`, `ci/test` and `ci/test --all` kill.
"""
