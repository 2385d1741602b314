"""Where a reproducer comes from: a check on this machine, which a seal proves, or somebody else.

Replaying carries out requests on a server that runs as you, and a server can be told to write any file (CONFIG SET dir,
SAVE) or to load a program (MODULE LOAD). What a check of yours recorded is yours; it is sealed with a key that lies in
the cache. Anything else, as from a CI job's artifact or a bug report, is carried out only when you say so, with plain
options, and never with a source tree that it names: a tree's makefile, too, runs as you.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError, UsageError
from harness.judge.reproducer import SEAL, read_reproducer, unsealed
from harness.record.recording_proxy import requests

if TYPE_CHECKING:
    from collections.abc import Collection

    from harness.core.cache import Cache
    from harness.judge.reproducer import Reproducer

PLAIN_OPTIONS = frozenset(
    {
        "--appendonly",
        "--cluster-enabled",
        "--cluster-node-timeout",
        "--crash-log-enabled",
        "--databases",
        "--dual-channel-replication-enabled",
        "--repl-backlog-size",
        "--repl-diskless-load",
        "--repl-diskless-sync",
        "--repl-diskless-sync-delay",
        "--sanitize-dump-payload",
    }
)
"""What suites start servers with that names neither a file nor a port, and listens nowhere."""
SHOWN_COMMANDS = 12


def _key(store: Cache, *, make: bool) -> bytes:
    """The cache's key; empty where there is none, and none is to be made."""
    path = store.path("keys", "reproducers")
    if not path.is_file() and make:
        with store.lock("keys-reproducers"):
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


def seal_all(store: Cache, folder: Path) -> None:
    """Seal the reproducers of a run that was made on this machine, and just now.

    With a cache that cannot be written there is no key, and no seal.
    """
    paths = sorted((folder / "reproducers").glob("*.json"))
    key = b""
    with contextlib.suppress(OSError, InfrastructureError):
        key = _key(store, make=bool(paths))
    for path in paths if key else []:
        document = unsealed(path.read_bytes())
        path.write_bytes(b'{"seal":"' + _seal(key, document) + b'",' + document[1:])


def is_ours(store: Cache, document: bytes) -> bool:
    """Whether a document has the seal of this cache, and is what was sealed."""
    key, seal = _key(store, make=False), SEAL.match(document)
    return bool(key and seal and hmac.compare_digest(seal[1], _seal(key, unsealed(document))))


def open_reproducer(store: Cache, catalogued: Collection[str], name: str, *, server: str, trust: bool) -> Reproducer:
    """Read a reproducer that may be carried out. `catalogued`: releases; `server`: what the user names instead.

    Raises UsageError for a stranger's, unless it is trusted and names nothing that is the user's own to name.
    """
    read = read_reproducer(name)
    if is_ours(store, Path(name).read_bytes()):
        return read
    if not trust:
        raise UsageError(
            "no check on this machine made the reproducer",
            where=name,
            because=f"what it asks of a server is done as you, and may write files. {_asks(read)}",
            remedy="if you trust who made it: the same with --trust",
        )
    if strange := _strange(read.options):
        raise UsageError(
            "a stranger's reproducer starts its server with an option that is not plain", where=name, because=strange
        )
    if not server and read.server not in catalogued:
        raise UsageError(
            "a stranger's reproducer names a source tree",
            where=name,
            because=f"the makefile of {read.server} would run as you",
            remedy="name the tree yourself: --server PATH",
        )
    return read


def _strange(options: tuple[str, ...]) -> str:
    """The first word that is neither a plain option nor a plain value of one."""
    for word in options:
        if word not in PLAIN_OPTIONS and not re.fullmatch(r"[A-Za-z0-9]+", word):
            return word
    # A word before all options is the name of a configuration file.
    return options[0] if options and not options[0].startswith("--") else ""


def _asks(reproducer: Reproducer) -> str:
    """What it would do, in a line."""
    if reproducer.unit:
        return f"It runs the unit {reproducer.unit} of {reproducer.server}"
    told = [line.partition(" ")[0].upper() for line in requests(reproducer.chunks)]
    if reproducer.again is not None:
        told += [line.partition(" ")[0].upper() for line in reproducer.again.requests]
    names = [f"{name} {count}×" for name, count in Counter(told).most_common(SHOWN_COMMANDS)]
    more = ", …" if len(set(told)) > SHOWN_COMMANDS else ""
    words = [f"It sends {', '.join(names)}{more} to {reproducer.server}"]
    words += [f"started with {' '.join(reproducer.options)}"] if reproducer.options else []
    words += [f"and the files {', '.join(reproducer.files)}"] if reproducer.files else []
    return ", ".join(words)
