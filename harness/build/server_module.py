"""Compiles a suite's server module for a target against the header of the server's own tree, and caches it.

A command that calls a function which the header lacks is compiled as one that replies so, and costs no other command.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.analysis import compiler_output
from harness.build import toolchain
from harness.build.helper_program import compiled
from harness.core.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.cache import Cache
    from harness.core.model import SourceTree
    from harness.core.target_model import Target, Toolchain
    from harness.record.compiler_warnings import Diagnostic


class ModuleMisfitError(InfrastructureError):
    """A module does not compile against the header of a server's tree, and not because of names that it lacks."""


LACKS = "LACKS"
"""The first word of the error that a command without its function replies; the names of what is missing follow."""
_MISSING = re.compile(r"implicit declaration of function ['‘](\w+)['’]|['‘](\w+)['’] undeclared")
"""GCC's messages about a name that no header declares."""


def build_module(cache: Cache, source: Path, tree: SourceTree, target: Target, tools: Toolchain) -> Path:
    """The shared object of the module `source`.

    Raises ModuleMisfitError when it does not compile for another reason than names that the tree's header lacks: the
    module is Plumbline's, and only its header is the server's.
    """
    header = tree.content / "src" / "redismodule.h"
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]

    def compile_text(text: str, *relaxed: str) -> Path:
        return compiled(
            cache,
            tools,
            title=f"the module {source.stem} for {target.name}",
            kind="server-modules",
            owner=f"{tree.name}-{target.name}",
            file=f"{source.stem}.so",
            flags=[*toolchain.compiler_flags(target, "O2"), *strict, *relaxed],
            generated={source.name: text},
            headers=[header],
            where=source,
        )

    text = source.read_text("utf-8")
    relaxed: tuple[str, ...] = ()
    while True:
        try:
            return compile_text(text, *relaxed)
        except InfrastructureError as error:
            fitting = without_missing(text, compiler_output.read(error.because, source.parent))
            if fitting is None:
                raise ModuleMisfitError(
                    error.what, where=error.where, because=compiler_output.first_error(error.because) or error.because
                ) from error
            # The compiler reports a function that nothing declares only where it is called first. What only the
            # replaced commands used is no error.
            text, relaxed = fitting, ("-Wno-unused-function", "-Wno-unused-variable")


def declared(cache: Cache, tree: SourceTree, names: Sequence[str], target: Target, tools: Toolchain) -> tuple[str, ...]:
    """The names among these that the tree's header for modules declares, according to the compiler."""
    header = tree.content / "src" / "redismodule.h"
    if not header.is_file():
        return ()
    uses = "".join(f"void use_{name}(void) {{ (void){name}; }}\n" for name in names)
    try:
        compiled(
            cache,
            tools,
            title=f"a question to the header for modules of {tree.name}",
            kind="server-modules",
            owner=f"{tree.name}-{target.name}",
            file="question.so",
            flags=["-std=gnu11", "-shared", "-fPIC"],
            generated={"question.c": f'#include "redismodule.h"\n{uses}'},
            headers=[header],
            where=header,
        )
    except InfrastructureError as error:
        missing = {name for found in _MISSING.findall(error.because) for name in found}
        return tuple(name for name in names if name not in missing)
    return tuple(names)


def without_missing(text: str, messages: Sequence[Diagnostic]) -> str | None:
    """A module's source in which each command with an error replies what the header lacks, on the same lines.

    None if there is an error outside of commands, or a command whose errors are not about missing names.
    """
    lacking: dict[str, list[str]] = {}
    for message in messages:
        if message.severity == "error":
            named = _MISSING.search(message.text)
            lacking.setdefault(message.function, []).extend(name for name in (named.groups() if named else ()) if name)
    for function, names in lacking.items():
        command = re.compile(
            rf"^(static int {re.escape(function)}\((\w+) \*(\w+), \w+ \*\*(\w+), int (\w+)\) \{{)\n.*?^\}}$",
            re.MULTILINE | re.DOTALL,
        )
        found = command.search(text)
        if not names or found is None:
            return None
        head, context, words, count = found[1], found[3], found[4], found[5]
        reply = f'"{LACKS} {" ".join(dict.fromkeys(names))}"'
        body = f" (void){words}; (void){count}; return RedisModule_ReplyWithError({context}, {reply}); }}"
        text = text[: found.start()] + head + body + "\n" * found[0].count("\n") + text[found.end() :]
    return text if lacking else None
