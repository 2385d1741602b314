"""Suites that are written in Tcl: their place in pytest, the words in which they are written, and their client.

It may import what `harness.run` may; the pytest plugin collects the suites, and a run's preparation compiles the client
(resp.c). Begin with `harness.run.tcl.suite`, then runner.tcl and endpoint.tcl.
"""
