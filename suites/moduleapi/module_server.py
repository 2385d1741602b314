"""Starts servers with the module, and compares their replies with a model's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.build.server_module import LACKS
from harness.protocol.resp import ReplyError
from suites._shared.keyspace import server
from suites._shared.paired_servers import differing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.protocol.resp import Client, Reply
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest


def is_lacking(reply: object) -> bool:
    """Whether a reply, or an error, says that the tree does not offer to modules what the request needs."""
    return isinstance(reply, ReplyError) and str(reply).startswith(f"{LACKS} ")


def lacking(reply: object) -> str:
    """What the tree lacks, according to such a reply."""
    return str(reply).removeprefix(LACKS).strip()


def start(start_guest: StartGuest, cell: CellSpec, target: str) -> Guest:
    """A server with the module."""
    options = [*server.OPTIONS, "--loadmodule", str(cell.module_on(target)), "--repl-diskless-sync-delay", "0"]
    return start_guest(target=target, options=options)


def expect(client: Client, cell: CellSpec, request: Sequence[Any], model: Reply) -> None:
    """Raise DifferenceError if the reply to a request is not the model's, and ReplyError if the module lacks it."""
    reply = client.pipeline([request])[0]
    if isinstance(reply, ReplyError) and is_lacking(reply):
        raise reply
    if reply != model:
        message = f"{request!r:.120}: got {reply!r:.200}, the model says {model!r:.200}"
        raise differing(request, reply, model, cell.runner.target.name, message, reader="a model")
