"""Makes raw evidence readable: addresses become functions and lines, stacks call chains, and logs reports.

It imports `isa`, `record` and `core`, and starts only symbol tools.
Begin with `symbols`, `unwind` and `disassembly`.
"""
