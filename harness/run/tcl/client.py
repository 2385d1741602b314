"""Compiles the client with which Tcl suites talk to servers: an extension of Tcl (resp.c)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.build.helper_program import compiled

if TYPE_CHECKING:
    from harness.core.cache import Cache
    from harness.core.target_model import Toolchain

CLIENT = Path(__file__).with_name("resp.c")


def compile_client(cache: Cache, tools: Toolchain) -> Path:
    """The library that runner.tcl loads, compiled for the host (`tools`).

    Raises InfrastructureError if it does not compile, usually because Tcl's header is missing.
    """
    return compiled(
        cache,
        tools,
        title="the client of Tcl suites",
        kind="tcl-clients",
        owner="native",
        file="resp.so",
        flags=[
            *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"),
            *("-DUSE_TCL_STUBS", "-shared", "-fPIC", "-ltclstub8.6"),
        ],
        sources=[CLIENT],
    )
