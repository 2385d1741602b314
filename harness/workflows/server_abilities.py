"""What a server can do, according to its native build: asked once, and kept with the build in the cache."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.build.server_module import declared
from harness.core import json_codec
from harness.core.digests import key_of
from harness.core.errors import InfrastructureError
from harness.core.model import Abilities
from harness.run import server_questions
from harness.run.server_process import Guest, StartError
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.target_setup import oracle_setup

if TYPE_CHECKING:
    from harness.core.model import Build, SourceTree
    from harness.workflows.workbench import Workbench

RECIPE = "1"
"""Part of every record's identity: raise it when the questions change other than by their data."""
FILE = "abilities.json"


def with_abilities(bench: Workbench, tree: SourceTree, native: Build) -> SourceTree:
    """The tree with the abilities that its native build reports. If that does not start or reply, they remain those of
    its source: a cell then shows what the server does.
    """
    key = key_of([RECIPE, native.key, server_questions.QUESTIONS.read_text("utf-8")])

    def fill(into: Path) -> None:
        (into / FILE).write_bytes(json_codec.pretty(_asked(bench, tree, native)))

    try:
        folder = bench.cache.folder("abilities", key, fill)
    except (StartError, InfrastructureError, OSError) as error:
        bench.progress.say(f"{tree.name} does not say natively what it can do ({error}): its source is read instead")
        return tree
    return msgspec.structs.replace(tree, abilities=json_codec.decode((folder / FILE).read_bytes(), Abilities))


def _asked(bench: Workbench, tree: SourceTree, native: Build) -> Abilities:
    """Raises StartError or InfrastructureError if the server does not start or ends, OSError if it does not reply."""
    setup = oracle_setup(bench)
    api = declared(bench.cache, tree, server_questions.questions().api, setup.target, setup.toolchain)
    spec = ServerSpec(build=native, version=tree.version)
    with tempfile.TemporaryDirectory(prefix="plumb-") as short:
        guest = Guest(spec, setup.runner("signal"), Path(short) / "server", sockets=Path(short))
        with guest, guest.client() as client:
            found = server_questions.ask(client, words=tree.abilities.options, api=api)
        if guest.ended is not None and guest.ended.how != "stopped":
            raise InfrastructureError(
                f"{tree.name} ended while it was asked what it can do", where="the native build", because=guest.detail
            )
    # Releases before 2.8.13 do not list their commands.
    return found if found.commands else msgspec.structs.replace(found, commands=tree.abilities.commands)
