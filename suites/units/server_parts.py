"""Judges of parts of a server that are neither functions nor containers: timers, slow log, memory test and the like."""

from __future__ import annotations

import re

from suites.units.values import exactly, hexadecimal


def memtest(key: str, values: list[str]) -> str:
    """A comparison prints 1 if the halves differ. All other numbers count faults."""
    faults = {"compare": 1, "numbers": 4, "values": 3, "addresses": 3, "preserve": 2}
    if " difference " in key:
        return exactly(values, ["1"])
    return exactly(values, ["0"] * faults[key.rpartition(" ")[2]])


def timers(key: str, values: list[str]) -> str:
    """Numbers of timers are relative to the first. The second timer is deleted; one whose number is 2^32 higher does
    not exist.
    """
    if key.startswith("delay"):
        return exactly(values, ["1" if key == "delay 0" else "0"])
    fired = [("1", str(number)) if number != 1 else ("0", "-1") for number in range(4)]
    return exactly(values, ["0", "1", "2", "3", "-1", "0", *(word for each in fired for word in each)])


def slowlog(key: str, values: list[str]) -> str:
    """The log keeps 128 bytes of an argument, and the number of bytes that it omitted."""
    length = int(key.rpartition(" ")[2])
    text = b"a" * min(length, 128) + (b"... (%d more bytes)" % (length - 128) if length > 128 else b"")
    return exactly(values, [str(len(text)), hexadecimal(text), str((1 << 40) + 1)])


def syncio(key: str, values: list[str]) -> str:
    """A call's result, whether it timed out, and whether it returned before its timeout."""
    ended = {
        "write what fits": 3000,
        "read what is there": 4000,
        "write to a slow reader": 1 << 22,
        "read from a slow writer": 36,
        "read a slow writer's line": 35,
    }.get(key.partition(",")[0])
    return exactly(values, [str(ended), "0", "1"] if ended is not None else ["-1", "1", "0"])


def rdb_counts(key: str, values: list[str]) -> str:
    """The report of the RDB checker begins with the three counts of the key."""
    text = bytes.fromhex(values[0][1:]).decode() if len(values) == 1 else ""
    reported, counted = re.findall(r"[0-9]+", text)[:3], key.split()[1:]
    return "" if reported == counted else f"it reports {text!r}"
