"""What the processes that we start see of the caller's environment: nothing but what is listed here.

A variable can take tests away (PYTEST_ADDOPTS), switch their assertions off (PYTHONOPTIMIZE), put other modules or
libraries in place of ours (PYTHONPATH, TCLLIBPATH, LD_PRELOAD), or have a compiler or an emulator do something else
(CFLAGS, MAKEFLAGS, QEMU_CPU). So there are lists of what is let through, and none of what is not.
"""

from __future__ import annotations

import os

PLAIN = {"LC_ALL": "C", "TZ": "UTC", "PATH": os.environ.get("PATH", os.defpath)}
"""What a server or compiler under test sees: results must not depend on the caller's locale (servers.md)."""

CELL = ("PATH", "TMPDIR")
"""What of the caller's environment reaches a cell's test process (docs/reference.md): where programs are, and where
there is room for temporary files."""

CELL_SETTINGS = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
"""What a cell's test process has besides."""

BUILD = ("HOME", "PATH", "TMPDIR")
"""What of it reaches the build of an emulator or a kernel: no flags of a compiler's or make's."""

USER = (*BUILD, "LOGNAME", "SUDO_UID", "USER", "XDG_CONFIG_HOME")
"""What of it git sees, which asks who owns a checkout, and what the user calls safe."""

REGISTRY = (
    *USER,
    "APT_CONFIG",
    "CURL_CA_BUNDLE",
    "NETRC",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "SUDO_ASKPASS",
    *(f"{kind}_proxy" for kind in ("all", "ftp", "http", "https", "no")),
    *(f"{kind}_PROXY" for kind in ("ALL", "FTP", "HTTP", "HTTPS", "NO")),
)
"""What of it clients of registries see (apt, pip), and all that begins with one of REGISTRY_PREFIXES."""
REGISTRY_PREFIXES = ("PIP_",)


def for_cell() -> dict[str, str]:
    """The environment of a cell's test process."""
    return {**_chosen(CELL), **CELL_SETTINGS}


def for_build(**extra: str) -> dict[str, str]:
    """The environment in which what is not under test is built."""
    return {**_chosen(BUILD), "LC_ALL": "C", **extra}


def for_git(**extra: str) -> dict[str, str]:
    """The environment of git. In a hook it would name the repository that the hook is for, by GIT_DIR and its like."""
    return {**_chosen(USER), "LC_ALL": "C", **extra}


def for_registry(**extra: str) -> dict[str, str]:
    """The environment of a client of registries, which the user may have configured by it."""
    configured = {name: value for name, value in os.environ.items() if name.startswith(REGISTRY_PREFIXES)}
    return {**_chosen(REGISTRY), **configured, "LC_ALL": "C", **extra}


def _chosen(names: tuple[str, ...]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}
