"""Compiles Plumbline's own programs and shared objects for a target, one command each, and caches them.

harness.build.server_build builds servers; harness.build.unit_drivers builds programs linked with a server's objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.build import toolchain
from harness.core.digests import key_of, refuse_edited, sha256_of
from harness.core.processes import process
from harness.core.processes.timeouts import if_slow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.core.cache import Cache
    from harness.core.target_model import Toolchain

COMPILE_SECONDS = 120


def compiled(
    cache: Cache,
    tools: Toolchain,
    *,
    title: str,
    kind: str,
    owner: str,
    file: str,
    flags: Sequence[str],
    sources: Sequence[Path] = (),
    headers: Sequence[Path] = (),
    generated: Mapping[str, str] | None = None,
    where: Path | None = None,
) -> Path:
    """The compiled file, from the cache if possible.

    The cache stores it under `kind` and the name of its `owner`, for example a target. `generated` maps names to the
    texts of additional files: C and assembly files are compiled, and headers are included first. The content of all
    these files is part of its identity.

    Raises InfrastructureError when it does not compile, with `title` and `where`, by default the first source.
    """
    compiler = toolchain.tool(tools, "gcc")
    written = generated or {}
    inputs = [*map(str, sources), *(name for name in written if name.endswith((".c", ".S")))]
    first = [word for name in written if name.endswith(".h") for word in ("-include", name)]
    folders = [f"-I{header.parent}" for header in headers]

    def key() -> str:
        contents = [*(sha256_of(path) for path in (*sources, *headers)), *written.values()]
        return key_of([*contents, toolchain.identity(tools), *flags])

    def compile_into(into: Path) -> None:
        for name, text in written.items():
            (into / name).write_text(text, "utf-8")
        process.run_successfully(
            [compiler, *inputs, *first, *flags, *folders, *(tools.libraries if tools.compilers else ()), "-o", file],
            problem=f"{title} does not compile",
            where=str(where or sources[0]),
            remedy="plumb doctor",
            remedy_if_late=if_slow(tools.timeout_multiplier),
            deadline_seconds=tools.deadline_seconds(COMPILE_SECONDS),
            folder=into,
        )
        refuse_edited(key(), before, str(where or sources[0]))

    before = key()
    return cache.folder(kind, f"{owner}-{before}", compile_into) / file


def archived(cache: Cache, tools: Toolchain, compiled_object: Path) -> Path:
    """An object as a static library, so that a program links it only if it lacks its functions. From the cache if
    possible.
    """
    name = f"lib{compiled_object.stem}.a"

    def archive(into: Path) -> None:
        process.run_successfully(
            [toolchain.tool(tools, "ar"), "rcsD", into / name, compiled_object],
            problem=f"{name} cannot be made",
            where=str(compiled_object),
            remedy="plumb doctor",
            remedy_if_late=if_slow(tools.timeout_multiplier),
            deadline_seconds=tools.deadline_seconds(COMPILE_SECONDS),
        )

    return cache.folder("family-libraries", compiled_object.parent.name, archive) / name
