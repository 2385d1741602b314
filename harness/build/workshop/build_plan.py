"""Everything that determines the content of a server's build: the tree, the target and the options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.build import toolchain
from harness.core.model import BuildSettings

if TYPE_CHECKING:
    from harness.build.sources.openssl import OpenSsl
    from harness.core.model import Allocator, SourceTree
    from harness.core.target_model import Target, Toolchain

    Linked = Literal["libc", "jemalloc", "makefile"]


_SYSCTL = re.compile(r"^\s*#\s*include\s*<sys/sysctl\.h>", re.MULTILINE)


class BuildPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A tree to compile for a target."""

    tree: SourceTree
    target: Target
    tools: Toolchain
    optimisation: str
    allocator: Allocator = "libc"
    tls: OpenSsl | None = None
    """OpenSSL; None for a server without TLS."""

    @property
    def title(self) -> str:
        """The product in messages."""
        return f"{self.tree.name} for {self.target.name}"

    @property
    def stem(self) -> str:
        """The prefix of a product's name in the cache, before its key."""
        return f"{self.tree.name}-{self.target.name}-{self.optimisation}"

    @property
    def linked(self) -> Linked:
        """The allocator that is linked into the binary; makefile: the one that the tree's makefile chooses. One that is
        preloaded does not change the binary.
        """
        match self.allocator:
            case "jemalloc" | "makefile":
                return self.allocator
            case _:
                return "libc"

    @property
    def settings(self) -> BuildSettings:
        """The settings that the tree's build for the target adds; none for a native build, whose flags differ."""
        return BuildSettings() if self.target.emulator.runs_here else self.tree.settings

    @property
    def compile_flags(self) -> list[str]:
        """The flags for every file of the tree."""
        flags = toolchain.compiler_flags(self.target, self.optimisation, _dialect(self.tree))
        own = self.settings.cflags
        # Whatever flags a distribution uses, addresses have lines, and stacks are complete.
        return [*flags, *own, *toolchain.EVIDENCE_FLAGS] if own else flags

    @property
    def lacking_headers(self) -> list[str]:
        """Headers that the tree includes and the C library has no longer; an empty file serves. glibc 2.32 removed
        sys/sysctl.h, which redis.c included from June 2014 to June 2015 without using it.
        """
        main = self.tree.content / "src" / "redis.c"
        included = main.is_file() and _SYSCTL.search(main.read_text("utf-8", "replace"))
        return ["sys/sysctl.h"] if included else []


def _dialect(tree: SourceTree) -> list[str]:
    """Flags that a tree requires because of its age.

    Before 6.0 headers define globals, which GCC 10 stopped merging. A tree whose own fmacros.h does not request
    _GNU_SOURCE yet requests _BSD_SOURCE, which glibc ignores since 2.20: its name became _DEFAULT_SOURCE
    (feature_test_macros(7)). Between 2.8 and 3.0 the request may follow a header of the C library, and then has no
    effect. _GNU_SOURCE would also change the meaning of strerror_r in hiredis.
    """
    # The flags count before anything is there that could be asked.
    old = ["-fcommon"] if tree.family == "redis" and tree.version < (6,) else []
    # Which header a file includes first can only be read from its text.
    late = tree.family == "redis" and (2, 9) <= tree.version < (3,)
    macros = tree.content / "src" / "fmacros.h"
    silent = macros.is_file() and "_GNU_SOURCE" not in macros.read_text("utf-8", "replace")
    # Without a value, a dependency may define a macro in the same way: an identical redefinition gives no warning.
    return [*old, *(["-D_DEFAULT_SOURCE="] if late else []), *(["-D_GNU_SOURCE="] if silent else [])]
