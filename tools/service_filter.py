"""Writes toolchains/environments/debian_service.toml: the system calls that Debian's service of Redis may make.

The unit file is that of Debian bookworm's package redis-server. What its groups of calls mean, bookworm's own systemd
says (`systemd-analyze syscall-filter`), and the calls' numbers bookworm's own libseccomp (`scmp_sys_resolver`): both
decide on a user's machine what is allowed. Run it again for another version: `python -m tools.service_filter`.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from harness.build.environments.system_call_filter import FILE, ServiceFilter
from harness.build.sources.debian_archive import Apt, unpack_packages
from harness.core.cache import Cache
from harness.core.processes import process

SUITE = "bookworm"
UNIT = "lib/systemd/system/redis-server.service"
PACKAGES = ("redis-server", "systemd", "seccomp", "libseccomp2")
ARCHITECTURES = {
    "arm64": "aarch64",
    "armel": "arm",
    "armhf": "arm",
    "mips64el": "mipsel64",
    "mipsel": "mipsel",
    "ppc64el": "ppc64le",
    "s390x": "s390x",
}
"""Architecture of the suite that Plumbline emulates -> libseccomp's name of its system calls."""
NUMBERS = {
    "arm": [range(600), range(0xF0001, 0xF0010)],
    "mipsel": [range(4000, 4600)],
    "mipsel64": [range(5000, 5600)],
}
"""libseccomp's name -> where Linux numbers its calls, if not from 0 on; 32-bit ARM has some more (asm/unistd.h)."""
UNKNOWN_CALL = "UNKNOWN"
TOOL_SECONDS = 60


def groups_in(listing: str) -> dict[str, list[str]]:
    """Group -> its members, calls and other groups, in what `systemd-analyze syscall-filter` prints."""
    groups: dict[str, list[str]] = {}
    name = ""
    for line in listing.splitlines():
        if line.startswith("@"):
            name = line.strip()
            groups[name] = []
        elif name and (member := re.fullmatch(r" +([@a-z_0-9-]+)", line)):
            groups[name].append(member[1])
        elif not line.strip():
            name = ""
    return groups


def calls_of(names: list[str], groups: dict[str, list[str]]) -> set[str]:
    """The calls that these names of calls and groups mean."""
    found: set[str] = set()
    for name in names:
        found |= calls_of(groups[name], groups) if name.startswith("@") else {name}
    return found


def allowed_by(directives: list[str], groups: dict[str, list[str]]) -> set[str]:
    """The calls that a unit's SystemCallFilter= lines allow, of which the first is a list of what is allowed.

    Such a list has the group @default, too, and a later line that begins with a tilde takes calls away
    (systemd.exec(5), SystemCallFilter=).
    """
    allowed = calls_of(["@default"], groups)
    for number, directive in enumerate(directives):
        words = directive.removeprefix("~").split()
        if directive.startswith("~"):
            assert number > 0, "the first line does not list what is allowed"
            allowed -= calls_of(words, groups)
        else:
            allowed |= calls_of(words, groups)
    return allowed


def service_filter(root: Path, versions: dict[str, str]) -> ServiceFilter:
    """The filter of the packages that were unpacked to a folder."""
    text = (root / UNIT).read_text("utf-8")
    directives = re.findall(r"^SystemCallFilter=(.+)$", text, re.MULTILINE)
    assert not re.search("^SystemCallErrorNumber=", text, re.MULTILINE), "it does not kill"
    groups = groups_in(_told(root, "systemd-analyze", "--no-pager", "syscall-filter"))
    allowed = allowed_by(directives, groups)
    numbers: dict[str, dict[str, int]] = {}
    for architecture in sorted(set(ARCHITECTURES.values())):
        for number in (one for part in NUMBERS.get(architecture, [range(600)]) for one in part):
            name = _told(root, "scmp_sys_resolver", "-a", architecture, str(number)).strip()
            if name != UNKNOWN_CALL:
                numbers.setdefault(name, {})[architecture] = number
    return ServiceFilter(
        unit=f"redis-server.service of Debian {SUITE}",
        packages={name: versions[name] for name in PACKAGES},
        directives=directives,
        architectures=ARCHITECTURES,
        allowed={name: numbers[name] for name in sorted(numbers) if name in allowed},
        killed={name: numbers[name] for name in sorted(numbers) if name not in allowed},
    )


def text_of(found: ServiceFilter) -> str:
    """The filter as TOML, a line for each call."""
    lines = [
        "# Written by `python -m tools.service_filter`.",
        f'unit = "{found.unit}"',
        "directives = [" + ", ".join(f'"{one}"' for one in found.directives) + "]",
    ]
    for title, table in (("packages", found.packages), ("architectures", found.architectures)):
        lines += ["", f"[{title}]", *(f'{name} = "{value}"' for name, value in table.items())]
    for title, calls in (("allowed", found.allowed), ("killed", found.killed)):
        lines += ["", f"[{title}]"]
        lines += [
            f"{name} = {{ " + ", ".join(f"{key} = {number}" for key, number in numbers.items()) + " }"
            for name, numbers in calls.items()
        ]
    return "\n".join(lines) + "\n"


def _told(root: Path, program: str, *words: str) -> str:
    libraries = [root / "usr/lib/x86_64-linux-gnu", root / "lib/x86_64-linux-gnu"]
    folders = [*libraries, *(folder / "systemd" for folder in libraries)]
    environment = {**process.PLAIN_ENVIRONMENT, "LD_LIBRARY_PATH": ":".join(map(str, folders))}
    result = process.run([root / "usr/bin" / program, *words], deadline_seconds=TOOL_SECONDS, environment=environment)
    assert result.code == 0, result.text
    return result.text


def main() -> None:
    """Fetch the packages and write the file."""
    cache = Cache.default()
    with tempfile.TemporaryDirectory(prefix="plumbline-") as name:
        folder = Path(name)
        apt = Apt(cache.path("apt", f"{SUITE}-amd64"), SUITE, "amd64")
        apt.update()
        fetched = apt.get("download", *PACKAGES, folder=folder)
        assert fetched.code == 0, fetched.text
        files = sorted(folder.glob("*.deb"))
        versions = {file.name.split("_")[0]: file.name.split("_")[1].replace("%3a", ":") for file in files}
        unpack_packages(files, folder / "root")
        FILE.write_text(text_of(service_filter(folder / "root", versions)), "utf-8")


if __name__ == "__main__":
    main()
