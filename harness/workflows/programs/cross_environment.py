"""The variables and files that make a build system compile for a target: of plumb exec, and what plumb env prints.

The compilers are wrappers: they add the target's flags, and the flags that make findings readable.
"""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING

from harness.build import toolchain
from harness.core.digests import key_of
from harness.core.processes import process
from harness.isa import registry

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.cache import Cache
    from harness.core.target_model import Target, Toolchain

TOOLS = {
    "AR": "ar",
    "NM": "nm",
    "OBJCOPY": "objcopy",
    "OBJDUMP": "objdump",
    "RANLIB": "ranlib",
    "READELF": "readelf",
    "STRIP": "strip",
}
"""Variable -> the binary tool that it names. LD is excluded: makefiles call it with flags of the compiler."""
COMPILERS = {"CC": "gcc", "CXX": "g++"}
VARIABLES = (
    *COMPILERS,
    *TOOLS,
    "CC_FOR_BUILD",
    "CMAKE_TOOLCHAIN_FILE",
    "CONFIG_SITE",
    "CPP",
    "HOST_TRIPLET",
    "MESON_CROSS_FILE",
    "PKG_CONFIG",
    "PKG_CONFIG_LIBDIR",
    "PKG_CONFIG_PATH",
    "PKG_CONFIG_SYSROOT_DIR",
)
"""The names of all variables. The last one is set only with a root folder."""
RUNNER = "/usr/bin/env"
"""The program by which CMake and Meson run programs of the target: any program works, because plumb exec sees what it
executes.
"""


def cross_environment(cache: Cache, target: Target, tools: Toolchain, root: Path | None = None) -> dict[str, str]:
    """Name -> value of every variable. Makes the files that they name, or finds them in the cache.

    `root`: a root folder of the target with further libraries and their headers, as Debian arranges them.

    Raises InfrastructureError if the target's compiler is missing.
    """
    identity = [toolchain.identity(tools, name) for name in COMPILERS.values()]
    search = process.PLAIN_ENVIRONMENT["PATH"]
    texts = _texts(target, tools, "", "", root)
    key = key_of([target.name, *target.compiler_flags, *identity, search, *texts.values()])
    folder = cache.path("cross-environments", f"{target.name}-{key}")
    compilers = {name: folder / f"{tools.triple}-{tool}" for name, tool in COMPILERS.items()}
    texts = _texts(target, tools, str(compilers["CC"]), str(compilers["CXX"]), root)

    def fill(into: Path) -> None:
        flags = [*toolchain.program_flags(target), *([f"--sysroot={root}"] if root is not None else [])]
        for name, path in compilers.items():
            toolchain.write_wrapper(into / path.name, tools, COMPILERS[name], flags, tools.libraries)
        for name, text in texts.items():
            (into / name).write_text(text, "utf-8")

    cache.folder("cross-environments", folder.name, fill)
    return {
        **{name: str(path) for name, path in compilers.items()},
        "CPP": f"{compilers['CC']} -E",
        **{name: toolchain.tool(tools, tool) for name, tool in TOOLS.items()},
        "CC_FOR_BUILD": "gcc",
        "CMAKE_TOOLCHAIN_FILE": str(folder / CMAKE),
        "CONFIG_SITE": str(folder / AUTOCONF),
        "HOST_TRIPLET": tools.triple,
        "MESON_CROSS_FILE": str(folder / MESON),
        "PKG_CONFIG": _pkg_config(tools),
        "PKG_CONFIG_LIBDIR": ":".join(_package_folders(tools, root)),
        "PKG_CONFIG_PATH": "",
        **({"PKG_CONFIG_SYSROOT_DIR": str(root)} if root is not None else {}),
    }


CMAKE, MESON, AUTOCONF = "toolchain.cmake", "cross.ini", "config.site"


def _texts(target: Target, tools: Toolchain, cc: str, cxx: str, root: Path | None) -> dict[str, str]:
    """Name -> content of the files that build systems read."""
    variant = registry.variant(target.emulator.qemu)
    family = (variant.meson_family if variant else "") or target.emulator.qemu
    named = {name: toolchain.tool(tools, tool) for name, tool in TOOLS.items()}
    cmake = [
        "set(CMAKE_SYSTEM_NAME Linux)",
        f"set(CMAKE_SYSTEM_PROCESSOR {target.machine})",
        f'set(CMAKE_C_COMPILER "{cc}")',
        f'set(CMAKE_CXX_COMPILER "{cxx}")',
        *(f'set(CMAKE_{name} "{tool}")' for name, tool in named.items()),
        f"set(CMAKE_CROSSCOMPILING_EMULATOR {RUNNER})",
    ]
    meson = [
        "[binaries]",
        f"c = '{cc}'",
        f"cpp = '{cxx}'",
        *(f"{name.lower()} = '{named[name]}'" for name in ("AR", "STRIP")),
        f"pkg-config = '{_pkg_config(tools)}'",
        f"exe_wrapper = '{RUNNER}'",
        "[host_machine]",
        "system = 'linux'",
        f"cpu_family = '{family}'",
        f"cpu = '{target.machine}'",
        f"endian = '{target.endianness}'",
    ]
    if root is not None:
        cmake += [
            f'set(CMAKE_SYSROOT "{root}")',
            f"set(CMAKE_LIBRARY_ARCHITECTURE {tools.triple})",
            "set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)",
        ]
        folders = ", ".join(f"'{folder}'" for folder in _package_folders(tools, root))
        meson += ["[properties]", f"sys_root = '{root}'", f"pkg_config_libdir = [{folders}]"]
    # A configure script reads it before it looks for the machine that it compiles for.
    autoconf = [f'test -n "$host_alias" || host_alias={tools.triple}']
    return {CMAKE: _lines(cmake), MESON: _lines(meson), AUTOCONF: _lines(autoconf)}


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _pkg_config(tools: Toolchain) -> str:
    name = toolchain.tool(tools, "pkg-config")
    return name if shutil.which(name) else "pkg-config"


def _package_folders(tools: Toolchain, root: Path | None) -> list[str]:
    """The folders of the pkg-config files of the target's libraries, those of a root folder alone if there is one."""
    if root is not None:
        return [f"{root}/usr/lib/{tools.triple}/pkgconfig", f"{root}/usr/share/pkgconfig"]
    return [f"/usr/lib/{tools.triple}/pkgconfig", f"/usr/{tools.triple}/lib/pkgconfig", "/usr/share/pkgconfig"]


def as_shell(variables: dict[str, str]) -> str:
    """The variables as commands of a POSIX shell."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))


def failing_shell() -> str:
    """Commands of a POSIX shell where there are no variables: they remove those of another target, and fail.

    A shell evaluates what it got of a command, not how that ended, and evaluating nothing succeeds.
    """
    return f"unset {' '.join(sorted(VARIABLES))}\nfalse\n"
