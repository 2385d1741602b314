"""Asks a server something on a connection of its own, which is not recorded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import hiredis

from harness.core.sockets import connect
from harness.protocol.resp import Client

if TYPE_CHECKING:
    from harness.core.sockets import Address

REPLY_SECONDS = 1.0
"""How long an answer at once may take, before a run's `--timeout-multiplier`."""
VALUES = 64
"""How many values tell where blocks begin: short ones are in the block of their object, long ones are not."""
_ADDRESS = re.compile(rb"Value at:(?:0x)?([0-9a-f]+) ")


def answers_ping(address: Address, *, deadline_seconds: float = REPLY_SECONDS) -> bool:
    """Whether a server at that address answers PING at once."""
    try:
        with connect(address, deadline_seconds=deadline_seconds) as client:
            client.sendall(b"*1\r\n$4\r\nPING\r\n")
            return client.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def identity(address: Address, *, deadline_seconds: float = REPLY_SECONDS) -> dict[str, bytes]:
    """The fields of INFO that identify a server; `version` is that of its family. Empty when it does not reply."""
    try:
        with Client(connect(address, deadline_seconds=deadline_seconds)) as client:
            reply = client.command("INFO", "server")
    except (OSError, hiredis.HiredisError):
        return {}
    lines = reply.split(b"\r\n") if isinstance(reply, bytes) else []
    fields = {name.decode("utf-8", "replace"): value for name, _, value in (line.partition(b":") for line in lines)}
    return {**fields, "version": fields.get("valkey_version", fields.get("redis_version", b""))}


def processed_commands(address: Address, *, deadline_seconds: float = REPLY_SECONDS) -> int:
    """The number of commands that the server there has processed (INFO); 0 when it does not reply."""
    try:
        with Client(connect(address, deadline_seconds=deadline_seconds)) as client:
            stats = client.command("INFO", "stats")
    except (OSError, hiredis.HiredisError):
        return 0
    found = re.search(rb"^total_commands_processed:(\d+)", stats, re.MULTILINE) if isinstance(stats, bytes) else None
    return int(found[1]) if found else 0


def addresses_of_values(client: Client) -> tuple[int, ...]:
    """The addresses of new values of a server, which are blocks of its allocator, as DEBUG OBJECT tells them; empty if
    it tells none. The values stay on the server.
    """
    names = [f"plumbline-block-{number}" for number in range(VALUES)]
    client.pipeline([("SET", name, "x" * (2 * number + 1)) for number, name in enumerate(names)])
    replies = client.pipeline([("DEBUG", "OBJECT", name) for name in names])
    found = [_ADDRESS.match(reply) for reply in replies if isinstance(reply, bytes)]
    return tuple(int(one[1], 16) for one in found if one)
