"""Makes raw evidence readable: addresses become functions and lines, stacks call chains, and logs reports.

It imports `isa`, `record` and `core`; it starts symbol tools and nothing else.
Begin with `symbols`, `unwind` and `disassembly`.
"""
