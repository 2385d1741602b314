"""What a dying server says of itself: a failed assertion, or a report of its crash.

It imports `analysis.disassembly`, `analysis.symbol_table`, `isa`, `record` and `core`. Begin with `assertion_log`.
"""
