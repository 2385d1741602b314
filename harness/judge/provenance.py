"""Where a reproducer comes from: a check on this host, proved by a seal, or another source.

A replay sends requests to a server that runs with your rights, and a request can make a server write any file (CONFIG
SET dir, SAVE) or load a program (MODULE LOAD). Your own checks seal their reproducers with a key in the cache. Any
other reproducer, such as one from a CI job's artifact or a bug report, runs only with `--trust` and with plain
options. It never runs with a source tree that it names, since the tree's makefile also runs with your rights.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError, UsageError
from harness.core.model import DISTRIBUTION
from harness.judge.reproducer import SEAL, read_reproducer, unsealed
from harness.record.transcript import requests

if TYPE_CHECKING:
    from collections.abc import Collection

    from harness.core.cache import Cache
    from harness.judge.reproducer import Reproducer

PLAIN_OPTIONS = frozenset(
    {
        "--aof-timestamp-enabled",
        "--appendfsync",
        "--appendonly",
        "--cluster-enabled",
        "--cluster-node-timeout",
        "--crash-log-enabled",
        "--databases",
        "--dual-channel-replication-enabled",
        "--events-per-io-thread",
        "--io-threads",
        "--io-threads-always-active",
        "--io-threads-do-reads",
        "--repl-backlog-size",
        "--repl-diskless-load",
        "--repl-diskless-sync",
        "--repl-diskless-sync-delay",
        "--repl-ping-replica-period",
        "--repl-rdb-channel",
        "--repl-timeout",
        "--sanitize-dump-payload",
        "--shutdown-timeout",
    }
)
"""Server options that suites use, and that name no file, name no port and open no socket."""
SHOWN_COMMANDS = 12


def _key(cache: Cache, *, make: bool) -> bytes:
    """The cache's key, created if `make` is set; empty if there is none."""
    path = cache.path("keys", "reproducers")
    if not path.is_file() and make:
        with cache.lock("keys-reproducers"):
            if not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.parent.chmod(0o700)
                unfinished = path.with_name(".reproducers")
                unfinished.unlink(missing_ok=True)
                with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                    stream.write(secrets.token_bytes(32))
                unfinished.rename(path)
    return path.read_bytes() if path.is_file() else b""


def _seal(key: bytes, document: bytes) -> bytes:
    return hmac.new(key, document, hashlib.sha256).hexdigest().encode()


def seal_all(cache: Cache, folder: Path) -> None:
    """Seal the reproducers of a run that this command has just made on this host.

    Without a writable cache there is no key, and so no seal.
    """
    paths = sorted((folder / "reproducers").glob("*.json"))
    key = b""
    with contextlib.suppress(OSError, InfrastructureError):
        key = _key(cache, make=bool(paths))
    for path in paths if key else []:
        document = unsealed(path.read_bytes())
        path.write_bytes(b'{"seal":"' + _seal(key, document) + b'",' + document[1:])


def is_ours(cache: Cache, document: bytes) -> bool:
    """Whether a document has this cache's seal and is unchanged."""
    key, seal = _key(cache, make=False), SEAL.match(document)
    return bool(key and seal and hmac.compare_digest(seal[1], _seal(key, unsealed(document))))


def open_reproducer(cache: Cache, catalogued: Collection[str], name: str, *, server: str, trust: bool) -> Reproducer:
    """Read a reproducer that may be replayed. `catalogued`: releases; `server`: the server that the user names instead.

    Raises UsageError for an unsealed one, unless the user trusts it, it has only plain options, and it is of a release
    or the user names the server.
    """
    read = read_reproducer(name)
    if is_ours(cache, Path(name).read_bytes()):
        return read
    if read.launch is not None:
        raise UsageError(
            "no run on this host made the reproducer",
            where=name,
            because=f"it runs a program of the machine that made it: {shlex.join(read.launch.words)}",
            remedy=f"build the program here: plumb exec --target {read.target} -- COMMAND",
        )
    if not trust:
        raise UsageError(
            "no check on this host made the reproducer",
            where=name,
            because=f"the server would execute its commands with your permissions, and may write files. {_asks(read)}",
            remedy="if you trust its author: the same command with --trust",
        )
    if strange := _strange(read.options):
        raise UsageError(
            "an untrusted reproducer starts its server with an option that is not allowed", where=name, because=strange
        )
    if read.settings.words:
        raise UsageError(
            "an untrusted reproducer adds to the build's command lines",
            where=name,
            because=f"compilers and make would obey it with your permissions: {' '.join(read.settings.words)}",
            remedy=(
                "build it yourself with the settings that you trust: plumb port --cflags FLAGS --make VARIABLE=VALUE"
            ),
        )
    if not server and read.server.startswith(DISTRIBUTION):
        raise UsageError(
            "an untrusted reproducer names a distribution's package",
            where=name,
            because=f"{read.server} would be downloaded and would run with your permissions",
            remedy=f"name the package yourself: --server {shlex.quote(read.server)}",
        )
    if not server and read.server not in catalogued:
        raise UsageError(
            "an untrusted reproducer names a source tree",
            where=name,
            because=f"the makefile of {read.server} would run with your permissions",
            remedy="name the tree yourself: --server PATH",
        )
    return read


def _strange(options: tuple[str, ...]) -> str:
    """The first word that is neither a harmless option (PLAIN_OPTIONS) nor a harmless value; empty if there is none."""
    for word in options:
        if word not in PLAIN_OPTIONS and not re.fullmatch(r"[A-Za-z0-9]+", word):
            return word
    # A word before the first option names a configuration file.
    return options[0] if options and not options[0].startswith("--") else ""


def _asks(reproducer: Reproducer) -> str:
    """The actions of a replay, in one line."""
    if reproducer.unit:
        return f"It runs the unit {reproducer.unit} of {reproducer.server}"
    commands = [line.partition(" ")[0].upper() for line in requests(reproducer.chunks)]
    if reproducer.again is not None:
        commands += [line.partition(" ")[0].upper() for line in reproducer.again.requests]
    names = [f"{name} {count}×" for name, count in Counter(commands).most_common(SHOWN_COMMANDS)]
    more = ", …" if len(set(commands)) > SHOWN_COMMANDS else ""
    words = [f"It sends {', '.join(names)}{more} to {reproducer.server}"]
    words += [f"started with {' '.join(reproducer.options)}"] if reproducer.options else []
    words += [f"and the files {', '.join(reproducer.files)}"] if reproducer.files else []
    return ", ".join(words)
