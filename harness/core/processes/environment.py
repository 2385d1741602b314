"""The part of the caller's environment that started processes see: only the variables that are listed here.

A variable can deselect tests (PYTEST_ADDOPTS), disable their assertions (PYTHONOPTIMIZE), replace modules or libraries
(PYTHONPATH, TCLLIBPATH, LD_PRELOAD), or change what a compiler or an emulator does (CFLAGS, MAKEFLAGS, QEMU_CPU). These
lists therefore name the variables that pass, instead of those that do not.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile

PLAIN = {"LC_ALL": "C", "TZ": "UTC", "PATH": os.environ.get("PATH", os.defpath)}
"""The environment of a server or a compiler under test: results must not depend on the caller's locale."""

CELL = ("PATH", "TMPDIR")
"""What a cell's test process sees besides its settings (docs/reference.md): the caller's PATH and a folder for its
temporary files."""

CELL_SETTINGS = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
"""Further variables of a cell's test process."""

BUILD = ("HOME", "PATH", "TMPDIR")
"""The caller's variables that reach the build of an emulator or a kernel: no flags for a compiler or make."""

USER = (*BUILD, "LOGNAME", "SUDO_UID", "USER", "XDG_CONFIG_HOME")
"""The caller's variables that git sees: it checks who owns a checkout, and which folders the user calls safe."""

GIT_CONFIGURATION = re.compile(r"GIT_CONFIG_(?:GLOBAL|SYSTEM|NOSYSTEM|COUNT|(?:KEY|VALUE)_\d+)")
"""More of them: variables that name its configuration (git-config(1)). CI systems call a folder safe in this way. A
hook's git has others.
"""

REACHING = (
    *USER,
    "ADB_VENDOR_KEYS",
    "ANDROID_ADB_SERVER_PORT",
    "ANDROID_SERIAL",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
)
"""The caller's variables that the commands see which reach another machine: ssh, adb, docker."""

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
"""The caller's variables that clients of registries see (apt, pip), besides those with one of REGISTRY_PREFIXES."""
REGISTRY_PREFIXES = ("PIP_",)


def for_cell() -> dict[str, str]:
    """The environment of a cell's test process.

    Its temporary files go where the command's do, which removes them. In a folder that other pytest sessions share, the
    first cell to need one would also remove their old folders.
    """
    return {**_chosen(CELL), **CELL_SETTINGS, "TMPDIR": tempfile.gettempdir()}


def for_build(**extra: str) -> dict[str, str]:
    """The environment of builds that are not under test."""
    return {**_chosen(BUILD), "LC_ALL": "C", **extra}


def for_git(**extra: str) -> dict[str, str]:
    """The environment of git, without variables such as GIT_DIR, which name the hook's repository in a hook."""
    configured = {name: value for name, value in os.environ.items() if GIT_CONFIGURATION.fullmatch(name)}
    return {**_chosen(USER), **configured, "LC_ALL": "C", **extra}


def for_reaching() -> dict[str, str]:
    """The environment of the commands that reach another machine. They send none of it there by themselves."""
    return {**_chosen(REACHING), "LC_ALL": "C"}


def for_registry(**extra: str) -> dict[str, str]:
    """The environment of a client of registries, with the user's own configuration of it."""
    configured = {name: value for name, value in os.environ.items() if name.startswith(REGISTRY_PREFIXES)}
    return {**_chosen(REGISTRY), **configured, "LC_ALL": "C", **extra}


def _chosen(names: tuple[str, ...]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def forget_the_callers_python() -> None:
    """Replace this process by itself without PYTHONPATH, PYTHONINSPECT and their like; return if there are none.

    Scripts that pip makes obey them. Modules that PYTHONPATH names would take the place of the standard library's, and
    decide the exit status.
    """
    # An installation in a folder that only PYTHONPATH names would not be found.
    root = os.path.abspath(f"{__file__}/../../../..")  # noqa: PTH100 - pathlib is not loaded yet
    named = map(os.path.abspath, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    changed = any(name.startswith("PYTHON") for name in os.environ) and not sys.flags.ignore_environment
    if changed and root not in named and os.path.basename(sys.argv[0]) == "plumb":  # noqa: PTH119
        os.execv(sys.executable, [sys.executable, "-E", "-P", *sys.argv])  # noqa: S606 - a shell would read the words
