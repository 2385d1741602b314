"""The formats of a report, one module each: none imports another.

It may import `harness.report`'s other modules, and the layers that they may import.
Begin with `registry`, which lists the formats; harness.report.report_format defines the description of a format.
"""
