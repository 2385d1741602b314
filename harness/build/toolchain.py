"""Provides the compilers installed on the host: missing packages, versions, and wrappers."""

from __future__ import annotations

import functools
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.digests import key_of, sha256_of
from harness.core.errors import InfrastructureError, UsageError
from harness.core.model import is_lto, level_flags
from harness.core.processes import process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.core.target_model import Target, Toolchain


COMPILERS = {"cc": "gcc", "gcc": "gcc", "c++": "g++", "g++": "g++"}
"""Name of a command -> the compiler that it stands for."""


def tool(toolchain: Toolchain, name: str) -> str:
    """A tool's command: `arm-linux-gnueabi-gcc`, or `gcc` for the host; a family's compiler by its path."""
    if toolchain.compilers and name in COMPILERS.values():
        return f"{toolchain.compilers}/{name}"
    if toolchain.tools:
        # LLVM's archiver reads objects for link-time optimisation without the compiler's help.
        return toolchain.tools.format(name.removeprefix("gcc-"))
    return f"{toolchain.triple}-{name}" if toolchain.triple else name


def own_compiler(toolchain: Toolchain, name: str) -> list[str]:
    """The target's own compiler, if a family's uses its library headers and links with it; else nothing."""
    return [f"{toolchain.triple}-{name}"] if toolchain.compilers and not toolchain.is_static else []


DPKG_SECONDS = 60.0
_ANSWERED = (0, 1)
"""dpkg-query's exit statuses with an answer (dpkg-query(1)): all packages are known, or some are not."""
_INSTALLED = ("installed", "triggers-awaited", "triggers-pending")
"""The states of a package whose files are all installed."""


@functools.cache
def missing_packages(packages: tuple[str, ...]) -> list[str]:
    """The Debian packages that are neither installed nor provided by an installed package.

    On an AArch64 host, for example, the package gcc provides gcc-aarch64-linux-gnu. Raises InfrastructureError without
    dpkg, and if dpkg cannot read its database.
    """
    there = installed_in(_states(packages))
    missing = [package for package in packages if package not in there]
    # dpkg-query reports nothing about a name that another package provides.
    provided = installed_in(_states([])) if missing else frozenset()
    return [package for package in missing if package not in provided]


def _states(packages: Iterable[str]) -> str:
    """The output of dpkg-query for packages; without names, for every one that it knows."""
    shown = "${Package} ${db:Status-Status} ${Provides}\\n"
    result = process.run(["dpkg-query", "--show", "--showformat", shown, *packages], deadline_seconds=DPKG_SECONDS)
    if result.expired or result.code not in _ANSWERED:
        late = f"it did not end within {DPKG_SECONDS:g} s" if result.expired else ""
        raise InfrastructureError(
            "dpkg-query does not say which packages are installed",
            because="\n".join(filter(None, [result.text.strip()[-500:], late])) or f"exit status {result.code}",
            remedy="dpkg-query --show; then repair what it reports, for example with dpkg --configure --pending",
        )
    return result.text


def installed_in(states: str) -> frozenset[str]:
    """The installed packages, and those that they provide.

    `states`: dpkg-query's lines of a package, its state (dpkg(1), "Package states"), and what it provides. A package
    whose triggers have not run yet counts as installed: ccache is in this state while another command installs a
    compiler.
    """
    there: set[str] = set()
    for line in states.splitlines():
        name, _, rest = line.partition(" ")
        state, _, provides = rest.partition(" ")
        if state in _INSTALLED:
            # Each with or without its version: `c-compiler, gcc-aarch64-linux-gnu (= 4:12.2.0-3)`.
            there |= {name, *(words[0] for one in provides.split(",") if (words := one.split()))}
    return frozenset(there)


def install_command(packages: Iterable[str]) -> str:
    """The exact command that installs the packages."""
    return "apt-get install --yes --no-install-recommends " + " ".join(packages)


@functools.cache
def version(compiler: str) -> str:
    """First line of `COMPILER --version`: part of a build's identity.

    Raises InfrastructureError without the compiler.
    """
    if shutil.which(compiler) is None:
        raise InfrastructureError(
            f"the compiler {compiler} is not installed",
            remedy="plumb doctor --install; without --install, it only prints what is missing",
        )
    return process.run([compiler, "--version"], deadline_seconds=60).text.splitlines()[0]


def identity(toolchain: Toolchain, name: str = "gcc") -> str:
    """A compiler's part of the identity of its objects. Raises InfrastructureError without the compiler."""
    # The folder of a family's compilers is named by its content, as are the objects that it links.
    family = [Path(toolchain.compilers).name, *toolchain.libraries] if toolchain.compilers else []
    own = own_compiler(toolchain, name)
    versions = [version(tool(toolchain, name)), *family, *map(version, own)]
    # The linking compiler. A family with static programs brings linker and C library: its folder's name covers them.
    linking = own or ([] if toolchain.compilers else [tool(toolchain, name)])
    linked = [digest_of_linked(compiler, tuple(toolchain.sysroot.values())) for compiler in linking]
    return " ".join([*versions, *linked])


_LINKING_PROGRAMS = ("as", "ld")
_LINKED_FILES = ("crt1.o", "libc_nonshared.a", "libc.so.6")
"""The parts of the GNU C library in a program: its start files, its static part, and the rest."""


@functools.cache
def digest_of_linked(compiler: str, libraries: tuple[str, ...]) -> str:
    """A digest of the `linked_files`. Their contents count, because `ld --version` does not show a distribution's
    patches.
    """
    return key_of(sha256_of(Path(path)) for path in linked_files(compiler, libraries))


def program_of(compiler: str, name: str) -> str:
    """The path of a program that a compiler calls; empty if it has none.

    For a program without a known path, a compiler prints only the name, and searches PATH when it calls it.
    """
    said = process.run([compiler, f"-print-prog-name={name}"], deadline_seconds=60).text.strip()
    return shutil.which(said) or ""


def assembler(toolchain: Toolchain) -> str:
    """The path of the assembler that makes a toolchain's objects; empty for a family, whose compilers contain it."""
    return "" if toolchain.compilers else program_of(tool(toolchain, "gcc"), "as")


def linked_files(compiler: str, libraries: tuple[str, ...]) -> list[str]:
    """The assembler, the linker and the C library of a compiler: separate packages.

    Missing files are omitted. `libraries`: the folders in which the target's programs find their shared objects. The
    compiler itself names only those of its default word size.
    """
    asked = [f"-print-file-name={name}" for name in _LINKED_FILES]
    said = [process.run([compiler, word], deadline_seconds=60).text.strip() for word in asked]
    programs = [program_of(compiler, name) for name in _LINKING_PROGRAMS]
    files = [name for name in said if Path(name).is_absolute()]
    files += [str(Path(folder) / _LINKED_FILES[-1]) for folder in libraries]
    return [path for path in [*programs, *files] if path and Path(path).is_file()]


EVIDENCE_FLAGS = ("-gdwarf-4", "-fno-omit-frame-pointer")
"""The flags that make evidence readable: lines of addresses, and stacks."""


def check_level(toolchain: Toolchain, optimisation: str) -> None:
    """Raise UsageError for an optimisation level that the toolchain lacks."""
    if is_lto(optimisation) and not toolchain.has_lto:
        raise UsageError(
            f"{toolchain.name} does not support link-time optimisation",
            where="--optimisation",
            remedy=f"--optimisation {optimisation.partition('-')[0]}, or another --toolchain",
        )


def compiler_flags(target: Target, optimisation: str, extra: Iterable[str] = ()) -> list[str]:
    """Flags after the makefile's own, so that they take precedence; always with debug information.

    The format is DWARF 4: addr2line of binutils 2.40 (Debian 12) attributes the first code of a DWARF 5 unit to the
    unit's own file even if it comes from a header. It placed what valkey-9.1.2 inlines from sds.h into debug.c at
    `debug.c:132`.
    """
    return [*target.compiler_flags, *level_flags(optimisation), *EVIDENCE_FLAGS, *extra]


def program_flags(target: Target) -> list[str]:
    """Flags for a program whose own build chooses the optimisation."""
    return [*target.compiler_flags, *EVIDENCE_FLAGS]


def write_wrapper(path: Path, toolchain: Toolchain, name: str, flags: Iterable[str], libraries: Iterable[str]) -> None:
    """Write a command that calls a toolchain's `gcc` or `g++` and adds the target's flags, and libraries at the end of
    the line, where order matters.

    If the machine has ccache, the command calls the compiler through it: a changed file then costs one compilation.
    """
    cached = shutil.which("ccache") is not None
    made_by = assembler(toolchain) if cached else ""
    words = [*(["ccache"] if cached else []), tool(toolchain, name)]
    call = f'{shlex.join(words)} "$@" {shlex.join(flags)}'
    # The servers' makefiles add libatomic only by machine name, and it must follow the objects. Zig's clang would put a
    # library that it is given while it compiles into the object.
    compiles = f"for word do case $word in -c|-S|-E) exec {call};; esac done"
    # Of everything that makes an object, ccache compares only the compiler and its input (ccache(1),
    # CCACHE_EXTRAFILES).
    more = f"CCACHE_EXTRAFILES=${{CCACHE_EXTRAFILES:+$CCACHE_EXTRAFILES:}}{shlex.quote(made_by)}"
    before = [more, "export CCACHE_EXTRAFILES"] if made_by else []
    _write_script(path, f"{call} {shlex.join(libraries)}", before="\n".join([*before, compiles]))


PLAIN_TOOLS = ("ar", "ranlib", "nm", "strip", "objcopy", "ld", "gcc-ar", "gcc-ranlib", "gcc-nm")
_READERS = ("ar", "ranlib", "nm")
"""The tools that need the compiler's help with objects for link-time optimisation (gcc-ar(1))."""


def write_plain_tools(folder: Path, toolchain: Toolchain, compilers: Path, optimisation: str) -> None:
    """Fill a folder, which must come first on PATH, with a target's tools under their plain names.

    A makefile's variable may contain more than a name (Lua's `AR= ar rcu`), which a word on make's command line would
    override, or the makefile may call a tool that no variable names. `compilers` contains the wrappers `gcc` and `g++`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in PLAIN_TOOLS:
        called = f"gcc-{name}" if is_lto(optimisation) and name in _READERS else name
        _write_script(folder / name, f'{shlex.quote(tool(toolchain, called))} "$@"')
    for name, wrapper in COMPILERS.items():
        _write_script(folder / name, f'{shlex.quote(str(compilers / wrapper))} "$@"')
    # Servers contain the number of lines by which they differ from their repository. Outside a repository, git compares
    # the makefile's two folders with each other instead: for half a second of each `make`, with a result that changes
    # whenever a source changes.
    _write_script(folder / "git", "false")


def _write_script(path: Path, command: str, *, before: str = ":") -> None:
    """Write a command that finds tools on this program's own PATH, not in the folder of `write_plain_tools`.

    `before`: what the script does first.
    """
    search = shlex.quote(process.PLAIN_ENVIRONMENT["PATH"])
    path.write_text(f"#!/bin/sh\nPATH={search}\nexport PATH\n{before}\nexec {command}\n", "utf-8")
    path.chmod(0o755)
