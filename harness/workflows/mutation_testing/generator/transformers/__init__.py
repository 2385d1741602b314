"""Transformers: functions that find the sites of operators which depend on types and scopes. A query of the syntax tree
alone cannot determine them.

Each yields changes that still compile. It leaves out sites where the change would be another bug than the operator's:
a variable whose address goes elsewhere, for example, is not narrowed.

It imports `analysis.c_source.syntax` and `generator.operators`. Begin with `registry`, which names every transformer; a
new one is a function of `calls`, `widths` or `layouts` and a line there.
"""
