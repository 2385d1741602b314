"""What a run that checks a change says of the change.

It owns the tests that did not run because the change cannot reach them, and the changes that nothing checked. Whether a
finding is the base's is decided in harness.judge.baseline. It may import `known` and `verdict`. Begin with
`unchecked_changes`.
"""
