"""How long to wait on a slow machine: one factor for the deadlines that depend on the machine's speed.

The deadlines are for a machine of the speed of a developer's. On a much slower one, such as an emulated computer,
something that merely takes long would count as hanging. `--timeout-multiplier` is the factor, 1 by default. The catalog
gives it to its targets and toolchains, and whatever waits asks one of them:

Target.deadline_seconds          the start of a server, programs of the target: canaries, units, the server's tools
Target.whole_deadline_seconds    a reply, the stop of a server, programs on a target's own kernel
Target.host_deadline_seconds     a cell, Tcl, probes of a server: work of the host
Toolchain.deadline_seconds       compilers and make
VmImage.deadline_seconds         a machine of the kernel tier itself: its boot, its saved state, the answers of its init

A campaign multiplies the deadlines of its jobs, the start of its scheduler on the host, and its waits for workers.

A server that hangs is still found, but later. The factor is never below 1, so a run finds nothing that only impatience
would show.

Not multiplied: the time limits that the user gives, the waits for a network, the watch of an emulated network
(harness.run.vm.network_watch), and commands of the system that have a hundred times as long as they need (dpkg-query,
addr2line, objdump).
"""

from __future__ import annotations

LARGEST_MULTIPLIER = 1000
"""The largest multiplier: with a larger one, some deadlines would be weeks long."""
_STEP = 4


def if_slow(multiplier: float) -> str:
    """The remedy for a missed deadline that only a slow machine misses.

    `multiplier`: the one that the deadline had.
    """
    return f"on a slow machine, --timeout-multiplier {min(_STEP * multiplier, LARGEST_MULTIPLIER):g}"
