"""The known list: findings that are expected for now. Each entry has a reason and a last day.

A finding is known if an entry fits each occasion on which any of its witnesses saw it. One occasion that fits no entry
makes the finding new.

A tree may bring its own list, `.plumbline/known.toml`. A run records a copy of it, and judging reads that copy. When a
change of the tree is checked, the run also records the list of the base revision: then only entries that both have
count, because a change must not excuse what it breaks.
"""

from __future__ import annotations

import datetime  # noqa: TC003 - msgspec reads the annotations when it decodes
import fnmatch
import itertools
import operator
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core.digests import sha256_of
from harness.core.errors import UsageError
from harness.core.model import Record
from harness.core.strict_toml import ROOT, at_line, decode_toml, line_of, read_text
from harness.core.target_model import DEFAULT_FAMILY, ORACLE, Endianness

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.core.finding import Finding, Occasion, Witness
    from harness.core.model import GuestEnvironment
    from harness.core.target_model import Target
    from harness.record.run_folder import RunRecord

DEFAULT = ROOT / "ci" / "known.toml"
IN_TREE = Path(".plumbline") / "known.toml"
"""A tree's own list, below its top folder."""
OF_TREE = "tree-known.toml"
"""RUN/tree-known.toml: the tree's own list, as it was when the run began."""
OF_BASE = "base-known.toml"
"""RUN/base-known.toml: the base revision's list, where a change was checked."""


class KnownFinding(Record, frozen=True):
    """One entry."""

    id: str
    """The finding's id; globs allowed."""
    reason: str
    expires: datetime.date
    """The last day on which the entry counts."""
    server: str = "*"
    """Server name, or path of a tree; globs allowed. Without the key: any."""
    release: str = ""
    """The releases of a family that show it, such as `redis >=7.0, <7.2.4`: by name, and trees by the release in their
    source (docs/howto/known-findings.md). Without the key: any."""
    targets: list[str] = msgspec.field(default_factory=lambda: ["*"])
    """Target names; globs allowed. Without the key: all targets."""
    width_bits: Literal[32, 64] | None = None
    """Restricts the targets to those of this word size. Without the key: any."""
    time_bits: Literal[32, 64] | None = None
    """Restricts the targets to those whose time_t has this size. Without the key: any."""
    endianness: Endianness | None = None
    """Restricts the targets to those of this byte order, `little` or `big`. Without the key: either."""
    toolchain: str = "*"
    """The family of toolchains that compiled, such as `clang-musl`; globs allowed. Without the key: any."""
    environment: str = "*"
    """What surrounded the programs, such as `musl-stack`; `usual` for nothing; globs allowed. Without the key: any."""
    suite: str = ""
    """The only suite that may show it. A run without that suite does not report the entry as unseen. Empty: any."""
    test: str = "*"
    """The test that shows it; globs allowed, `?` for a bracket."""
    command: str = "*"
    """The client's request; globs allowed."""
    said: str = "*"
    """The whole message of a failed test, or the title of any other finding; globs allowed."""
    via: list[str] = msgspec.field(default_factory=list)
    """Functions that must all be on the stack, in any order; globs allowed."""
    conditional: bool = False
    """Whether it appears under some seeds, in some tiers, or beside some targets only. No run reports such an entry as
    unseen.
    """
    intermittent: bool = False
    """Whether it appears by chance. No run reports such an entry as unseen, and `premerge` runs its tests whatever
    changes.
    """


class KnownList(Record, frozen=True):
    """A known-findings file: Plumbline's own, the one that `--known` names, or a tree's own."""

    findings: list[KnownFinding]


def load_known(
    path: Path, machines: Mapping[str, Target], toolchain: str, environment: GuestEnvironment = "usual"
) -> KnownList:
    """Read a known-findings file, and resolve each entry's targets to the names of machines.

    Raises UsageError, with file and line, if the file is invalid.
    """
    return KnownList(findings=resolved(entries_of(read_text(path), path), machines, toolchain, environment))


def entries_of(text: str, path: Path) -> list[KnownFinding]:
    """The entries of a known-findings file as they are written. `path` is for messages.

    Raises UsageError, with file and line.
    """
    entries = decode_toml(text, path, KnownList).findings
    for number, entry in enumerate(entries):
        if entry.release and not _RANGE.fullmatch(entry.release):
            raise UsageError(
                "not a range of releases",
                where=at_line(path, line_of(text, "findings", number, "release")),
                because=f"release = '{entry.release}'",
                remedy="a family, and conditions between commas: release = 'redis >=7.0, <7.2.4'",
            )
    return entries


def resolved(
    entries: Sequence[KnownFinding], machines: Mapping[str, Target], toolchain: str, environment: GuestEnvironment
) -> list[KnownFinding]:
    """The entries with the names of those machines that their targets, width and byte order select.

    `toolchain`, `environment`: what compiled for the run's targets, and what surrounded their programs; for the oracle,
    both are always the usual one.
    """
    return [
        msgspec.structs.replace(
            entry,
            targets=[
                name
                for name, machine in machines.items()
                if fnmatch.fnmatchcase(_family(name, machine, toolchain), entry.toolchain)
                and fnmatch.fnmatchcase("usual" if name == ORACLE else environment, entry.environment)
                and _covers(entry, name, machine)
            ],
        )
        for entry in entries
    ]


def _family(name: str, machine: Target, toolchain: str) -> str:
    """The family of toolchains that compiled for a machine. Where the distribution has no compiler, the machine has
    another family's, and its toolchain is named FAMILY-TARGET.
    """
    if name == ORACLE:
        return DEFAULT_FAMILY
    if toolchain != DEFAULT_FAMILY:
        return toolchain
    own = machine.toolchain.removesuffix(f"-{name}")
    return own if own != machine.toolchain else DEFAULT_FAMILY


def _covers(entry: KnownFinding, name: str, machine: Target) -> bool:
    return (
        any(fnmatch.fnmatch(name, pattern) for pattern in entry.targets)
        and entry.width_bits in {None, machine.width_bits}
        and entry.time_bits in {None, machine.time_bits}
        and entry.endianness in {None, machine.endianness}
    )


_CONDITION = r"(==|>=|<=|>|<)\s*(\d+(?:\.\d+)*)"
_RANGE = re.compile(rf"(redis|valkey)(\s+{_CONDITION}(\s*,\s*{_CONDITION})*)?")
_RELEASE_NAME = re.compile(r"(redis|valkey)-(\d+(?:\.\d+)*)")
_COMPARISONS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "==": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def concerns(entry: KnownFinding, server: str, release: str = "") -> bool:
    """Whether an entry is for a server. `release`: what it is or counts as, `redis-7.0.15`; empty: its name says it."""
    return fnmatch.fnmatchcase(server, entry.server) and (
        not entry.release or _in_range(release or server, entry.release)
    )


def _in_range(release: str, wanted: str) -> bool:
    name = _RELEASE_NAME.fullmatch(release)
    if name is None or not wanted.startswith(name[1]):
        return False
    return all(
        _COMPARISONS[sign](*_of_equal_length(name[2], version)) for sign, version in re.findall(_CONDITION, wanted)
    )


def _of_equal_length(*versions: str) -> list[tuple[int, ...]]:
    """The versions' numbers. Missing ones are 0: 7.0 is 7.0.0."""
    numbers = ([int(part) for part in version.split(".")] for version in versions)
    return list(zip(*itertools.zip_longest(*numbers, fillvalue=0), strict=True))


def release_name(run: RunRecord) -> str:
    """The release that a run's server is or counts as, `redis-7.0.15`; empty for a tree in a run of an old format."""
    return f"{run.family}-{run.release}" if run.release else ""


def match(
    known: KnownList, finding: Finding, server: str, today: datetime.date, *, release: str = ""
) -> list[KnownFinding]:
    """The unexpired entries that together fit all occasions of a finding; empty if one occasion fits none.

    `release`: as in `concerns`.
    """
    used: list[KnownFinding] = []
    for witness in finding.witnesses:
        for occasion in witness.occasions:
            fitting = [
                entry
                for entry in known.findings
                if entry.expires >= today
                and concerns(entry, server, release)
                and _fits(entry, finding.id, witness, occasion)
            ]
            if not fitting:
                return []
            used += fitting[:1]
        if not witness.occasions:
            return []
    return [entry for number, entry in enumerate(used) if entry not in used[:number]]


def _fits(entry: KnownFinding, identity: str, witness: Witness, occasion: Occasion) -> bool:
    return (
        any(fnmatch.fnmatchcase(name, entry.id) for name in (identity, occasion.id) if name)
        and witness.target in entry.targets
        and entry.suite in {"", witness.suite}
        and fnmatch.fnmatchcase(occasion.test, entry.test)
        and fnmatch.fnmatchcase(occasion.command, entry.command)
        and fnmatch.fnmatchcase(occasion.said or occasion.title, entry.said)
        and all(fnmatch.filter(occasion.functions, function) for function in entry.via)
    )


_UNSEEN = " was not seen in this run"


def remarks(
    known: KnownList,
    found: Sequence[Finding],
    server: str,
    targets: Sequence[str],
    today: datetime.date,
    *,
    release: str = "",
    suites: Sequence[str] = (),
    part: bool = False,
) -> list[str]:
    """Sentences on the list's upkeep: entries that expired, and entries for this run that matched nothing.

    `release`: as in `concerns`. `part`: only some tests ran, so entries that matched nothing are not reported.
    """
    sentences = []
    for entry in known.findings:
        concerned = concerns(entry, server, release) and not set(entry.targets).isdisjoint(targets)
        about = f"known finding {entry.id} ({entry.release or entry.server})"
        if concerned and entry.expires < today:
            sentences.append(f"{about} expired on {entry.expires}: {entry.reason}")
            continue
        always = not (entry.conditional or entry.intermittent)
        due = concerned and not part and always and entry.suite in {"", *suites}
        if due and not any(_matches(entry, finding) for finding in found):
            sentences.append(f"{about}{_UNSEEN}")
    return sentences


def unseen_in(remark: str) -> str:
    """The id, or the glob, of the entry of which a sentence of `remarks` says that nothing matched it; else empty."""
    found = re.match(rf"known finding (\S+) \(.*\){_UNSEEN}\Z", remark)
    return found[1] if found else ""


def _matches(entry: KnownFinding, finding: Finding) -> bool:
    return any(
        _fits(entry, finding.id, witness, occasion) for witness in finding.witnesses for occasion in witness.occasions
    )


EMPTY = "findings = []\n"


def text_in(tree: Path) -> str:
    """The text of a tree's own list; empty if it has none. Raises UsageError, with file and line, if it is damaged."""
    path = tree / IN_TREE
    if not path.is_file():
        return ""
    text = read_text(path)
    entries_of(text, path)
    return text


def record(folder: Path, of_tree: str, of_base: str | None) -> None:
    """Write the tree's list into a run folder, and the base revision's where a change is checked (else None).

    An empty text stands for no list. Judging uses the files if run.json has their digests.
    """
    if of_tree or of_base:
        (folder / OF_TREE).write_text(of_tree or EMPTY, "utf-8")
    if (of_tree or of_base) and of_base is not None:
        (folder / OF_BASE).write_text(of_base or EMPTY, "utf-8")


class OwnList(Record, frozen=True):
    """The part of a tree's own list that counts in a run."""

    entries: list[KnownFinding]
    """Those for the run's server."""
    remarks: list[str]
    """Sentences on the entries that the checked change adds to the list or removes from it."""


def own_list(folder: Path, run: RunRecord) -> OwnList:
    """The entries of the tree's own list that a run recorded, and of these only the base's if that was recorded.

    A file that is not as it was recorded counts for nothing. Raises UsageError for an invalid list.
    """
    of_tree = _recorded(folder, OF_TREE, run)
    entries, remarks = entries_of(of_tree, folder / OF_TREE), []
    if OF_BASE in run.beside:
        of_base = _recorded(folder, OF_BASE, run)
        in_base = entries_of(of_base, folder / OF_BASE)
        remarks = changes(of_tree, of_base)
        entries = [entry for entry in entries if entry in in_base]
    concerned = [entry for entry in entries if concerns(entry, run.server, release_name(run))]
    own = resolved(concerned, run.machines, run.toolchain, run.environment)
    return OwnList(entries=own, remarks=remarks)


def _recorded(folder: Path, name: str, run: RunRecord) -> str:
    path = folder / name
    if name not in run.beside or not path.is_file() or sha256_of(path) != run.beside[name]:
        return EMPTY
    return path.read_text("utf-8")


def changes(of_tree: str, of_base: str) -> list[str]:
    """Sentences on a change of a tree's own list: what it adds, and what it removes. An empty text is no list."""
    if of_tree == of_base:
        return []
    here, there = entries_of(of_tree or EMPTY, IN_TREE), entries_of(of_base or EMPTY, IN_TREE)
    added = [entry for entry in here if entry not in there]
    removed = [entry for entry in there if entry not in here]
    return [
        f"the change edits {IN_TREE}" + ("" if added or removed else "; no entry changes"),
        *(f"it adds {_in_words(entry)}; entries that a change adds excuse none of its findings" for entry in added),
        *(f"it removes {_in_words(entry)}" for entry in removed),
    ]


def _in_words(entry: KnownFinding) -> str:
    return f"{entry.id} ({entry.reason}; until {entry.expires})"


def excused_by_own(own: OwnList, found: Sequence[Finding], today: datetime.date) -> list[str]:
    """A sentence with the findings that the tree's own list excuses; empty if there are none."""
    excused = [
        finding.id
        for finding in found
        if finding.known and any(entry.expires >= today and _matches(entry, finding) for entry in own.entries)
    ]
    return [f"{IN_TREE} of the tree excuses {', '.join(excused)}"] if excused else []
