"""The system calls that Debian's service of Redis may make, by architecture (toolchains/environments).

`tools/service_filter.py` writes the file. A call that it does not allow ends a service by SIGSYS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.cache import disk_errors
from harness.core.digests import key_of
from harness.core.model import Record
from harness.core.strict_toml import ROOT, read_toml

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.cache import Cache

FILE = ROOT / "toolchains" / "environments" / "debian_service.toml"


class ServiceFilter(Record, frozen=True):
    """toolchains/environments/debian_service.toml."""

    unit: str
    """The unit file, and the package that contains it."""
    packages: dict[str, str]
    """Package -> version, for the packages that determine what is allowed."""
    directives: list[str]
    """The unit's lines `SystemCallFilter=`, in their order."""
    architectures: dict[str, str]
    """Debian's architecture -> libseccomp's name of its system calls."""
    allowed: dict[str, dict[str, int]]
    """System call -> libseccomp's name of an architecture -> its number there."""
    killed: dict[str, dict[str, int]]
    """Likewise, of every call that libseccomp knows and the unit does not allow."""

    def lines(self, debian_architecture: str) -> list[str]:
        """The emulator's file for an architecture: `NUMBER NAME allow|kill` for each call, by number."""
        architecture = self.architectures[debian_architecture]
        rows = [
            (numbers[architecture], name, word)
            for word, calls in (("allow", self.allowed), ("kill", self.killed))
            for name, numbers in calls.items()
            if architecture in numbers
        ]
        return [f"{number} {name} {word}" for number, name, word in sorted(rows)]


def read_filter() -> ServiceFilter:
    """The filter. Raises UsageError when its file is not valid."""
    return read_toml(FILE, ServiceFilter)


def placed(cache: Cache, service: ServiceFilter, debian_architecture: str) -> Path:
    """The emulator's file for an architecture, in the cache."""
    text = "".join(f"{line}\n" for line in service.lines(debian_architecture))

    def write(into: Path) -> None:
        with disk_errors(into):
            (into / "system-calls").write_text(text, "ascii")

    return cache.folder("system-calls", f"{debian_architecture}-{key_of([text])}", write) / "system-calls"
