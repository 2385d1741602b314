"""Known-list entries match by globs, only in their stated places, and only until their last day."""

from __future__ import annotations

import datetime
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.core.errors import ExitCode, UsageError
from harness.core.finding import Finding, Occasion, Witness
from harness.judge.known.known_list import DEFAULT, KnownFinding, KnownList, Settings, entries_of, load_known
from harness.judge.known.matching import match, remarks
from harness.plan.catalog import Catalog
from tests.support import fakes

if TYPE_CHECKING:
    from harness.core.model import GuestEnvironment
    from tests.support.fakes import Plumb

TODAY = datetime.date(2026, 11, 21)
ARM = ("armv5", "armv6", "armv7")
ENTRY = 'id = "a"\nserver = "b"\nreason = "c"\nexpires = 2027-01-01\n'


def listed(
    *, name: str = "alignment-bitop*", server: str = "redis-3.*", targets: tuple[str, ...] = ARM, days: int = 0
) -> KnownList:
    found = KnownFinding(
        id=name, server=server, targets=list(targets), reason="why", expires=TODAY + datetime.timedelta(days=days)
    )
    return KnownList(findings=[found])


TEST = "bitops/test_bitops.py::test_bitop"


def witness(*occasions: Occasion, target: str = "armv5", suite: str = "bitops") -> Witness:
    return Witness(
        target=target,
        suite=suite,
        file="src/bitops.c",
        line=93,
        instruction="",
        access="",
        test=occasions[0].test if occasions else "",
        evidence="",
        backtrace=[],
        occasions=list(occasions),
    )


def occasion(
    *,
    test: str = TEST,
    command: str = "BITOP NOT a b",
    title: str = "misaligned load in bitopCommand",
    said: str = "",
    functions: tuple[str, ...] = ("bitopCommand", "call", "main"),
) -> Occasion:
    return Occasion(test=test, command=command, title=title, said=said, functions=functions)


def found(*witnesses: Witness, name: str = "alignment-bitopCommand-load") -> Finding:
    """A finding with these witnesses, or with a default one."""
    witnesses = witnesses or (witness(occasion()),)
    return Finding(
        id=name,
        kind="alignment",
        title="",
        function="bitopCommand",
        file="src/bitops.c",
        line=93,
        instruction="",
        access="",
        origin="server",
        targets=[one.target for one in witnesses],
        command="",
        replay="",
        known="",
        witnesses=list(witnesses),
        occurrences=len(witnesses),
    )


def found_on(*targets: str, name: str = "alignment-bitopCommand-load") -> Finding:
    return found(*(witness(occasion(), target=target) for target in targets), name=name)


def narrowed(**changes: object) -> KnownList:
    """A list with one entry, narrowed by these fields."""
    (entry,) = listed().findings
    return KnownList(findings=[msgspec.structs.replace(entry, **changes)])


@pytest.mark.parametrize(
    ("finding", "server", "targets", "matches"),
    [
        ("alignment-bitopCommand-load", "redis-3.2.6", ["armv5"], True),
        ("alignment-bitopCommand-load", "redis-3.2.6", ["armv5", "armv6"], True),
        ("alignment-bitopCommand-load", "redis-3.2.6", ["armv5", "sparc64"], False),
        ("alignment-bitopCommand-load", "redis-7.0.15", ["armv5"], False),
        ("alignment-murmur32-load", "redis-3.2.6", ["armv5"], False),
    ],
)
def test_an_entry_covers_a_finding_only_where_all_of_its_fields_match(
    finding: str, server: str, targets: list[str], *, matches: bool
) -> None:
    assert matches == bool(match(listed(), found_on(*targets, name=finding), server, TODAY))


@pytest.mark.parametrize(
    ("suites", "matches"),
    [(["bitops"], True), (["bitops", "bitops"], True), (["bitops", "sds"], False), (["sds"], False)],
)
def test_an_entry_of_one_suite_covers_no_finding_of_another(suites: list[str], *, matches: bool) -> None:
    finding = found(*(witness(occasion(), suite=suite) for suite in suites))
    assert matches == bool(match(narrowed(suite="bitops"), finding, "redis-3.2.6", TODAY))


@pytest.mark.parametrize(
    ("field", "fits", "fits_not"),
    [
        ("test", "bitops/*::test_bitop", "bitops/*::test_bitcount"),
        ("command", "BITOP *", "BITCOUNT *"),
        ("said", "*load in bitop*", "*store in bitop*"),
        ("via", ["call", "bitop*"], ["call", "bitcountCommand"]),
    ],
)
def test_an_entry_covers_only_occasions_that_match_its_fields(field: str, fits: object, fits_not: object) -> None:
    assert match(narrowed(**{field: fits}), found(), "redis-3.2.6", TODAY)
    assert not match(narrowed(**{field: fits_not}), found(), "redis-3.2.6", TODAY)


@pytest.mark.parametrize(
    ("line", "fits"), [("*", True), ("a = *b;", True), ("a = [*]b;", True), ("a = c;", False), ("", False)]
)
def test_an_entry_covers_only_the_text_of_the_line_that_it_names(line: str, *, fits: bool) -> None:
    sources = {"src/bitops.c": {93: "\ta = *b;", 94: "a = c;"}}
    assert fits == bool(match(narrowed(line=line), found(), "redis-3.2.6", TODAY, sources=sources))
    unseen = remarks(narrowed(line=line), [found()], "redis-3.2.6", ["armv5"], TODAY, sources=sources)
    assert fits != bool(unseen)


@pytest.mark.parametrize(
    "other",
    [
        occasion(command="SETRANGE k 1 x"),
        occasion(test="bitops/test_bitops.py::test_setrange"),
        occasion(title="the server ended in start: no such module"),
        occasion(functions=("bitopCommand", "main")),
    ],
    ids=["command", "test", "title", "stack"],
)
def test_one_occasion_that_no_entry_covers_makes_a_finding_new(other: Occasion) -> None:
    known = narrowed(test=TEST, command="BITOP *", said="misaligned*", via=["call"])
    assert match(known, found(witness(occasion(), occasion())), "redis-3.2.6", TODAY)
    assert not match(known, found(witness(occasion(), other)), "redis-3.2.6", TODAY)
    assert not match(known, found(witness(occasion()), witness(other, target="armv6")), "redis-3.2.6", TODAY)


def test_entries_cover_a_finding_together_each_where_it_was_seen() -> None:
    one, other = narrowed(suite="bitops").findings[0], narrowed(suite="sds", reason="likewise").findings[0]
    finding = found(witness(occasion()), witness(occasion(), suite="sds"), witness(occasion()))
    assert match(KnownList(findings=[one, other]), finding, "redis-3.2.6", TODAY) == [one, other]
    assert not match(KnownList(findings=[one]), finding, "redis-3.2.6", TODAY)


def test_the_whole_message_of_a_failed_test_counts() -> None:
    failed = occasion(title="test_bitop: failed", said="failed\nit was 5\nand not 6")
    assert match(narrowed(said="*was 5?and*"), found(witness(failed)), "redis-3.2.6", TODAY)
    assert not match(narrowed(said="*was 7*"), found(witness(failed)), "redis-3.2.6", TODAY)
    assert not match(narrowed(said="test_bitop: failed"), found(witness(failed)), "redis-3.2.6", TODAY)


def test_a_finding_without_occasions_is_new() -> None:
    assert not match(listed(), found(witness()), "redis-3.2.6", TODAY)


@pytest.mark.parametrize(
    ("narrowed", "toolchain", "meant"),
    [
        ("", "gcc", ["aarch64", "armv5", "sparc32plus", "sparc64"]),
        ("targets = ['*64', 'armv*']", "gcc", ["aarch64", "armv5", "sparc64"]),
        ("width_bits = 32", "gcc", ["armv5", "sparc32plus"]),
        ("endianness = 'big'", "gcc", ["sparc32plus", "sparc64"]),
        ("targets = ['sparc*']\nwidth_bits = 64\nendianness = 'big'", "gcc", ["sparc64"]),
        ("targets = ['mips*']", "gcc", []),
        ("toolchain = 'clang-*'", "gcc", []),
        ("time_bits = 32", "gcc", ["armv5", "sparc32plus"]),
        ("toolchain = 'clang-*'\nwidth_bits = 32", "clang-musl", ["armv5", "sparc32plus"]),
    ],
)
def test_an_entry_selects_targets_by_name_width_byte_order_and_toolchain(
    tmp_path: Path, narrowed: str, toolchain: str, meant: list[str]
) -> None:
    machines = {name: Catalog().targets[name] for name in ("aarch64", "armv5", "sparc32plus", "sparc64")}
    path = fakes.write(tmp_path / "known.toml", f"[[findings]]\n{ENTRY}{narrowed}\n")
    assert [entry.targets for entry in load_known(path, machines, Settings(toolchain=toolchain)).findings] == [meant]


@pytest.mark.parametrize(
    ("family", "meant"),
    [
        ("clang-*", ["aarch64_be", "armeb", "loongarch64"]),
        ("clang-musl", ["aarch64_be", "armeb", "loongarch64"]),
        ("gcc", ["armv7"]),
    ],
)
def test_a_target_without_a_distributions_compiler_belongs_to_its_own_family(
    tmp_path: Path, family: str, meant: list[str]
) -> None:
    machines = {name: Catalog().targets[name] for name in ("aarch64_be", "armeb", "armv7", "loongarch64")}
    path = fakes.write(tmp_path / "known.toml", f"[[findings]]\n{ENTRY}toolchain = '{family}'\n")
    assert [entry.targets for entry in load_known(path, machines, Settings()).findings] == [meant]


def test_the_oracle_is_never_compiled_by_another_toolchain(tmp_path: Path) -> None:
    machines = {name: Catalog().targets[name] for name in ("armv5", "native")}
    path = fakes.write(tmp_path / "known.toml", f"[[findings]]\n{ENTRY}toolchain = 'clang-*'\n")
    assert [entry.targets for entry in load_known(path, machines, Settings(toolchain="clang-musl")).findings] == [
        ["armv5"]
    ]


@pytest.mark.parametrize(
    ("narrowed", "environment", "meant"),
    [
        ("environment = 'musl-stack'", "usual", []),
        ("environment = 'musl-stack'", "musl-stack", ["armv5"]),
        ("environment = 'musl-stack'", "debian-service", []),
        ("environment = 'usual'", "usual", ["armv5", "native"]),
        ("environment = 'usual'", "musl-stack", ["native"]),
        ("", "musl-stack", ["armv5", "native"]),
    ],
)
def test_an_entry_selects_an_environment_which_the_oracle_never_has(
    tmp_path: Path, narrowed: str, environment: GuestEnvironment, meant: list[str]
) -> None:
    machines = {name: Catalog().targets[name] for name in ("armv5", "native")}
    path = fakes.write(tmp_path / "known.toml", f"[[findings]]\n{ENTRY}{narrowed}\n")
    assert [entry.targets for entry in load_known(path, machines, Settings(environment=environment)).findings] == [
        meant
    ]


@pytest.mark.parametrize(
    ("narrowed", "settings", "meant"),
    [
        ("policy = 'strict'", Settings(), []),
        ("policy = 'strict'", Settings(policy="strict"), ["armv5"]),
        ("policy = 'signal'", Settings(policy="strict"), ["native"]),
        ("allocator = 'guard*'", Settings(), []),
        ("allocator = 'guard*'", Settings(allocator="guard-natural"), ["armv5", "native"]),
    ],
)
def test_an_entry_selects_a_policy_which_the_oracle_never_has_and_an_allocator(
    tmp_path: Path, narrowed: str, settings: Settings, meant: list[str]
) -> None:
    machines = {name: Catalog().targets[name] for name in ("armv5", "native")}
    path = fakes.write(tmp_path / "known.toml", f"[[findings]]\n{ENTRY}{narrowed}\n")
    assert [entry.targets for entry in load_known(path, machines, settings).findings] == [meant]


@pytest.mark.parametrize(("days", "counts"), [(-1, False), (0, True), (1, True)])
def test_the_last_day_is_included(days: int, *, counts: bool) -> None:
    assert counts == bool(match(listed(days=days), found(), "redis-3.2.6", TODAY))


def test_remarks_concern_only_this_runs_server_and_targets() -> None:
    assert remarks(listed(days=-1), [], "redis-7.0.15", ["armv5"], TODAY) == []
    assert remarks(listed(days=-1), [], "redis-3.2.6", ["sparc64"], TODAY) == []
    assert 1 == len(remarks(listed(days=-1), [], "redis-3.2.6", ["armv5"], TODAY))  # noqa: SIM300


def test_an_entry_that_was_seen_has_no_remark() -> None:
    assert remarks(listed(), [found()], "redis-3.2.6", ["armv5"], TODAY) == []


def test_an_entry_that_matches_no_finding_has_a_remark() -> None:
    (remark,) = remarks(narrowed(command="BITCOUNT *"), [found()], "redis-3.2.6", ["armv5"], TODAY)
    assert remark == "known finding alignment-bitop* (redis-3.*) was not seen in this run"


def test_an_entry_that_excuses_everything_has_a_remark() -> None:
    (entry,) = listed().findings

    def remarks_for(**of: Any) -> list[str]:
        wide = KnownList(findings=[msgspec.structs.replace(entry, id="*", **of)])
        return remarks(wide, [found()], "redis-3.2.6", ["armv5"], TODAY)

    (remark,) = remarks_for(test="?*")
    assert remark.startswith("known finding * (redis-3.*) fits every finding, whatever it is")
    for narrow in ({"suite": "bitops"}, {"test": "test_*"}, {"via": ["bitop*"]}):
        assert not any("fits every finding" in one for one in remarks_for(**narrow))


def test_an_entry_of_one_suite_is_not_reported_unseen_by_a_run_without_it() -> None:
    of_suite = KnownList(findings=[msgspec.structs.replace(listed().findings[0], suite="protocol")])
    assert remarks(of_suite, [], "redis-3.2.6", ["armv5"], TODAY, suites=["canary", "bitops"]) == []
    assert len(remarks(of_suite, [], "redis-3.2.6", ["armv5"], TODAY, suites=["canary", "protocol"])) == 1


def test_an_entry_is_not_reported_unseen_if_a_cell_that_may_show_it_has_no_verdict() -> None:
    def missed(*unjudged: tuple[str, str], suite: str = "") -> bool:
        of_suite = KnownList(findings=[msgspec.structs.replace(listed().findings[0], suite=suite)])
        suites = ["bitops", "protocol"]
        return bool(remarks(of_suite, [], "redis-3.2.6", ["armv5"], TODAY, suites=suites, unjudged=unjudged))

    assert not missed(("armv5", "bitops"))
    assert not missed(("armv5", "bitops"), suite="bitops")
    assert missed(("armv5", "bitops"), suite="protocol")
    assert missed(("sparc64", "bitops"))


def test_an_entry_is_not_reported_unseen_if_only_some_tests_were_run() -> None:
    assert remarks(listed(), [], "redis-3.2.6", ["armv5"], TODAY, part=True) == []
    assert "expired" in remarks(listed(days=-1), [], "redis-3.2.6", ["armv5"], TODAY, part=True)[0]


def test_the_projects_own_list_is_valid() -> None:
    """It is also valid that each entry names existing machines."""
    chosen = [Settings(allocator="jemalloc"), *(Settings(toolchain=name) for name in ("gcc", *Catalog().families))]
    lists = [load_known(DEFAULT, Catalog().targets, settings).findings for settings in chosen]
    for entries in zip(*lists, strict=True):
        assert any(entry.targets for entry in entries), entries[0]


LEAST = 8
"""Minimum number of literal characters with which an entry describes its symptom. `*volatile*` is too short."""
OF_WORDS = ("wrong-result", "exit", "hang", "crash-")
"""Kinds of findings that only their messages distinguish from others of the same test."""


def width_of(entry: KnownFinding) -> str:
    """The reason why an entry of the project's own list is too wide; empty if it is not."""

    def says(pattern: str) -> bool:
        return len(re.sub(r"\[.[^]]*\]|[*?]", "", pattern)) >= LEAST

    if not says(entry.id) or entry.id.startswith(("*", "?", "[")):
        return "its id fits findings of any kind"
    if entry.id.startswith(OF_WORDS) and not entry.id.startswith("crash-handler-") and not says(entry.said):
        return "it does not name the words of the failure"
    if not any(map(says, (entry.said, entry.command, entry.line, *entry.via, entry.test))):
        return "nothing tells it from another fault in its function"
    if entry.server == "*" and not entry.release and not (entry.via or entry.toolchain != "*"):
        return "it is for every server"
    return ""


def test_no_entry_of_the_projects_own_list_would_excuse_another_bug() -> None:
    """Regression: an entry with the id `*` for a test of TLS settings excused a misaligned load in murmur32."""
    entries = entries_of(DEFAULT.read_text("utf-8"), DEFAULT)
    assert {f"{entry.id}, {entry.suite}: {why}" for entry in entries if (why := width_of(entry))} == set()


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"id": "*", "test": "suite/test_file.py::test_one*"}, "its id fits findings of any kind"),
        ({"id": "*_test_file.py_test_one"}, "its id fits findings of any kind"),
        ({"id": "wrong-result-suite_test_file.py_test_one"}, "it does not name the words of the failure"),
        ({"id": "wrong-result-suite_test_file.py_test_one", "said": "*0 [a-z]*"}, "it does not name the words"),
        ({"id": "exit-start", "test": "suite/test_file.py::test_one"}, "it does not name the words of the failure"),
        ({"id": "sigsegv-listNext"}, "nothing tells it from another fault in its function"),
        ({"id": "sigsegv-listNext", "via": ["beforeSleep"], "server": "*", "release": ""}, ""),
        ({"id": "sigsegv-listNext", "test": "suite/test_file.py::test_one", "release": ""}, "it is for every server"),
        ({"id": "sigsegv-listNext", "line": "current->next;"}, ""),
        ({"id": "wrong-result-suite_test_file.py_test_one", "said": "*guest 1, native*"}, ""),
    ],
)
def test_a_wide_entry_is_recognised(keys: dict[str, Any], why: str) -> None:
    entry = KnownFinding(**{"reason": "why", "expires": TODAY, "release": "redis <9", **keys})
    assert width_of(entry).startswith(why)
    assert bool(width_of(entry)) is bool(why)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("findigns = []\n", "'findings' is the nearest known key"),
        ('[[findings]]\nid = "a"\nserver = "b"\ntargets = []\nreason = "c"\n', "expires"),
        (f"[[findings]]\n{ENTRY}width_bits = 16\n", "16"),
        ('[[findings]]\nid = "a"\nreason = " "\nexpires = 2027-01-01\n', "an entry needs a reason"),
        (f"[[findings]]\n{ENTRY}seldom = true\n", "intermittent"),
        (f"[[findings]]\n{ENTRY}endianness = 'middle'\n", "middle"),
        (
            '[[findings]]\nid = "a"\nserver = "b"\ntargets = []\nreason = "c"\nexpires = "soon"\n',
            "expires",
        ),
    ],
)
def test_an_invalid_list_is_a_usage_error_that_names_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_known(fakes.write(tmp_path / "known.toml", text), {}, Settings())
    assert message in str(caught.value)


@pytest.mark.parametrize("how", ["conditional", "intermittent"])
def test_an_intermittent_or_conditional_entry_is_not_reported_unseen(how: str) -> None:
    (entry,) = listed().findings
    known = KnownList(findings=[msgspec.structs.replace(entry, **{how: True})])
    assert remarks(known, [], "redis-3.2.6", ["armv5"], TODAY) == []


def own(name: str, **changes: str) -> Finding:
    """A finding for which the project's own list has an entry, seen on one 32-bit machine."""
    fields = {"test": TEST, "command": "", "title": "", **changes}
    return found(witness(occasion(functions=(), **fields), suite=fields["test"].partition("/")[0]), name=name)


PAYLOAD = "width/test_width.py::test_a_payload_with_a_string_longer_than_it_is_refused[string-all-ones]"


@pytest.mark.parametrize(
    ("test", "command", "known"),
    [
        (PAYLOAD, 'RESTORE k 0 "x"', True),
        ("fuzz/test_restore.py::test_restore[7]", 'RESTORE restored 0 "x"', True),
        (
            "fuzz/test_restore.py::test_restore[7]",
            "CONFIG SET sanitize-dump-payload yes  (one of 25 in a pipeline)",
            True,
        ),
        ("fuzz/test_restore.py::test_restore[7]", "APPEND restored x", False),
        (PAYLOAD, "SETRANGE k 4294967295 x", False),
        ("fuzz/test_streams.py::test_streams[7]", "APPEND k x", False),
        ("sds/test_limits.py::test_growth", 'RESTORE k 0 "x"', False),
        ("strings/strings.testsuite::strings-6.1", "SETRANGE k 4294967295 x", False),
    ],
)
def test_an_overflowing_size_is_known_only_in_a_payload(test: str, command: str, *, known: bool) -> None:
    listed = load_known(DEFAULT, Catalog().targets, Settings())
    finding = own("assertion-_sdsnewlen", test=test, command=command, title="assertion failed in _sdsnewlen")
    assert known == bool(match(listed, finding, "redis-7.0.15", TODAY))


MODULE = "modules/test_modules.py::test_an_independent_reader[native]"


@pytest.mark.parametrize(
    ("test", "message", "known"),
    [
        (MODULE, "exit status 1; 7:M 22 Nov 2026 # Can't load module from /m/plumbline.so: server aborting", True),
        (MODULE, "exit status 1; Unrecognized option: loadmodule", False),
        (MODULE, "killed by SIGBUS; 7:M 22 Nov 2026 # Can't load module from /m/plumbline.so: server aborting", False),
        (MODULE, "exit status 127; cannot execute", False),
    ],
)
def test_a_server_that_does_not_start_is_known_only_by_its_message(test: str, message: str, *, known: bool) -> None:
    listed = load_known(DEFAULT, Catalog().targets, Settings())
    finding = found(
        witness(
            occasion(test=test, command="", title=f"the server ended in start: {message}", functions=()),
            target="sparc32plus",
            suite="modules",
        ),
        name="exit-start",
    )
    assert known == bool(match(listed, finding, "redis-7.0.15", TODAY))


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_list_that_is_not_a_regular_file_is_refused_and_not_read_endlessly(
    plumb: Plumb, tmp_path: Path, kind: str
) -> None:
    path = Path("/dev/zero")
    if kind == "pipe":
        path = tmp_path / "known.toml"
        os.mkfifo(path)
    code, _, err = plumb("check", "--known", path, "--target", "armv5")
    assert code == ExitCode.USAGE
    assert f"error: the file cannot be read ({path})\n  because: it is not a regular file" in err
