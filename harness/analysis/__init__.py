"""Raw evidence made readable: addresses become functions and lines, stacks become call chains, logs become reports.

It imports `isa`, `record` and `core`; it starts symbol tools and nothing else.
Begin with `symbols`, `unwind` and `disassembly`.
"""
