"""Before a merge, on a real checkout, the suites that a changed file requires run, or the report says they did not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.core.errors import ExitCode
from harness.record import cell_events, event_log, run_folder
from tests.end_to_end.support.changed_checkouts import OF, commit, edit, premerge
from tests.end_to_end.support.plumb_runs import document, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end


@pytest.mark.slow(
    instead=(
        "tests/unit/workflows/test_suite_selection.py and tests/unit/workflows/test_premerge.py; "
        "test_a_planted_bug_is_found_and_a_function_that_no_test_enters_is_named"
    )
)
def test_a_changed_file_is_checked_by_the_suites_that_it_selects(checkout: Path, tmp_path: Path) -> None:
    edit(checkout / "src" / "sha256.c", "* Filename:   sha256.c", "* Filename:   sha256.c, changed")
    explained = run("premerge", *OF, checkout, "--target", "native", "--explain", "--json")
    chosen = {"canary", *document(explained)["suites"]}
    finished = run(
        "premerge",
        "--server",
        checkout,
        "--base",
        "HEAD",
        "--target",
        "native",
        "--run",
        tmp_path / "chosen",
        "--json",
    )
    read = document(finished)
    assert (finished.returncode, read["verdict"]) == (ExitCode.PASS, "PASS"), finished.stderr
    assert {cell["suite"] for cell in read["cells"]} == chosen
    assert not (tmp_path / "chosen" / "base").exists(), "nothing was found, so the base must not be checked"
    assert chosen == {"canary", "units"}


def plant_in_the_bus(checkout: Path) -> None:
    """Plant a bus error at every packet of the cluster's bus."""
    head = "    clusterMsg *hdr = (clusterMsg*) link->rcvbuf;\n    uint32_t totlen = ntohl(hdr->totlen);\n"
    edit(checkout / "src" / "cluster.c", head, head + "    (void)*(volatile int *)(link->rcvbuf + 1);\n")


@pytest.mark.slow(instead="tests/unit/judge/test_unchecked_changes.py and tests/unit/workflows/test_suite_selection.py")
def test_of_a_file_that_a_longer_suite_alone_covers_it_is_said_that_it_did_not_run(
    checkout: Path, tmp_path: Path
) -> None:
    """Regression: the change passed, because the suite that sends such packets is in the tier `full`."""
    plant_in_the_bus(checkout)
    explained = run("premerge", *OF, checkout, "--target", "armv5", "--explain", "--json")
    assert "cluster" in document(explained)["suites"]

    code, read, errors = premerge(checkout, tmp_path / "without", "--suite", "sds")
    assert (code, read["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN"), errors
    message = "NOT CHECKED: src/cluster.c is covered only by `cluster`, `moduleapi` and `width`: not run"
    assert message in read["unchecked"]
    assert {cell["verdict"] for cell in read["cells"]} == {"PASS"}


@pytest.mark.slow(instead="test_a_planted_bug_is_found_and_a_function_that_no_test_enters_is_named, in another suite")
def test_a_bug_of_the_clusters_bus_is_found_by_its_suite(checkout: Path, tmp_path: Path) -> None:
    plant_in_the_bus(checkout)
    code, read, errors = premerge(checkout, tmp_path / "run", "--suite", "cluster")
    assert code == ExitCode.FINDINGS, errors
    blamed = {one["id"] for one in read["findings"] if not one["known"]}
    assert "alignment-clusterProcessPacket-load" in blamed
    assert read["unchecked"] == []


@pytest.mark.slow(instead="the other tests of test_premerge.py, by quick suites; tests/unit/workflows/test_premerge.py")
def test_fail_overs_are_tested_although_they_wait_for_time_outs(checkout: Path, tmp_path: Path) -> None:
    """Regression: a planted bug in the message to a returning primary passed, because no test of it ran."""
    edit(checkout / "src" / "cluster.c", '#include "cluster.h"', '#include "cluster.h" /* changed */')
    words = ("--base", "HEAD", "--target", "native", "--run", tmp_path / "run", "--suite", "cluster")
    finished = run("premerge", "--server", checkout, *words)
    assert finished.returncode == ExitCode.PASS, finished.stderr
    events = event_log.read_events(tmp_path / "run" / "native" / "cluster" / event_log.NAME)
    outcomes = {event.name: event.outcome for event in events if isinstance(event, cell_events.TestEvent)}
    waiting = "cluster/test_membership.py::test_a_primary_that_returns_learns_who_has_replaced_it"
    assert outcomes[waiting] == "passed"


@pytest.mark.slow(instead="tests/unit/workflows/test_premerge.py and tests/unit/workflows/test_suite_selection.py")
def test_a_changed_header_requires_the_suites_that_alone_cover_the_altered_code(checkout: Path, tmp_path: Path) -> None:
    """Regression: a bug in a macro that only the cluster's bus uses passed, because a changed header selected no suite
    that sends packets.
    """
    header, user = checkout / "src" / "server.h", checkout / "src" / "cluster.c"
    edit(header, "void bitopCommand(client *c);", "void bitopCommand(client *c);\n#define PLUMB_AT(buffer) (buffer)\n")
    head = "    clusterMsg *hdr = (clusterMsg*) link->rcvbuf;\n    uint32_t totlen = ntohl(hdr->totlen);\n"
    edit(user, head, f"{head}    (void)*(volatile char *)PLUMB_AT(link->rcvbuf);\n")
    commit(checkout)
    edit(header, "PLUMB_AT(buffer) (buffer)", "PLUMB_AT(buffer) ((volatile int *)((buffer) + 1))")
    code, read, errors = premerge(checkout, tmp_path / "without", "--suite", "units")
    assert (code, read["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN"), errors
    message = "NOT CHECKED: src/cluster.c is covered only by `cluster`, `moduleapi` and `width`: not run"
    assert message in read["unchecked"]
    assert not any("src/bitops.c" in one for one in read["unchecked"])


@pytest.mark.slow(instead="tests/unit/judge/test_unchecked_changes.py")
def test_of_the_client_the_edited_lines_are_named_that_no_test_executes(checkout: Path, tmp_path: Path) -> None:
    """Regression: a misaligned store in an untested mode of the client passed, because the server equals the base's."""
    source = checkout / "src" / "redis-cli.c"
    never = "    srand(time(NULL)^getpid());\n    while(1) {\n        /* Perform cycles of 1 second"
    edit(source, never, never.replace("\n", " *(volatile int *)(key + 1) = 0;\n", 1))
    executed = '        out = sdscat(out,"ERROR,");'
    edit(source, executed, f"        if (r->len != 77777) {executed.strip()}")
    line = source.read_text("utf-8").partition(" *(volatile int *)")[0].count("\n") + 1
    code, read, errors = premerge(checkout, tmp_path / "client", "--suite", "programs")
    assert (code, read["verdict"]) == (ExitCode.PASS, "PASS"), errors
    assert f"no test executes these changed lines: src/redis-cli.c:{line} on armv5" in read["remarks"]


@pytest.mark.slow(instead="tests/unit/judge/test_unchecked_changes.py")
def test_of_the_server_with_tls_the_edited_lines_are_named_that_no_test_executes(
    checkout: Path, tmp_path: Path
) -> None:
    """Regression: a misaligned load that no test reaches passed, because the server without TLS equals the base's."""
    source = checkout / "src" / "tls.c"
    edit(source, "    sds cert_pem = ", "    if (*(volatile int *)(bio_ptr + 1) == 7) bio_len--;\n    sds cert_pem = ")

    def never(run: str) -> tuple[int, dict[str, Any], str]:
        """Run a premerge. Also returns the current place of the line that is never executed."""
        code, read, _ = premerge(checkout, tmp_path / run, "--suite", "tls")
        number = source.read_text("utf-8").partition("bio_ptr + 1")[0].count("\n") + 1
        return code, read, f"src/tls.c:{number}"

    code, read, place = never("alone")
    assert (code, read["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN")
    assert read["unchecked"] == [f"NOT CHECKED: no test executes any changed line on armv5: {place}"]
    assert not any("does not alter" in one for one in read["remarks"])

    edit(source, "    char buf[iov_bytes_len];", "    if (iovcnt == 77777) return -1;\n    char buf[iov_bytes_len];")
    code, read, place = never("beside another")
    assert (code, read["verdict"], read["unchecked"]) == (ExitCode.PASS, "PASS", [])
    assert f"no test executes these changed lines: {place} on armv5" in read["remarks"]


@pytest.mark.slow(instead="tests/unit/workflows/test_cell_runs.py, on cells that end as they are told to")
def test_where_the_base_fails_alike_on_two_targets_a_third_is_not_asked(checkout: Path, tmp_path: Path) -> None:
    source = checkout / "src" / "sha1.c"
    shown = '    printf("SHA1=");\n'
    edit(source, shown, f'#ifndef __x86_64__\n    assert(!"an old failure");\n#endif\n{shown}')
    edit(source, "#include <stdio.h>\n", "#include <assert.h>\n#include <stdio.h>\n")
    commit(checkout)
    counted = "        context->count[1]++;\n"
    edit(source, counted, f"{counted}    if (len == 77777) return;\n")
    three = ("--target", "armv6", "--target", "sparc64")
    code, read, errors = premerge(checkout, tmp_path / "run", *three)
    assert code == ExitCode.PASS, errors
    inherited = [one["targets"] for one in read["findings"] if one["known"].startswith("also in BASE")]
    assert inherited == [["armv5", "sparc64"]]
    reasons = {cell["target"]: cell["reason"] for cell in read["cells"] if cell["suite"] == "selftests"}
    assert "stand for its width" in reasons["armv6"]
    base = run_folder.read_run(tmp_path / "run" / "base-early")
    assert (base.targets, base.suites) == (["armv5", "sparc64"], ["canary", "selftests"])
    assert not (tmp_path / "run" / "base").exists(), "the base runs the failed tests once"


@pytest.mark.slow(instead="tests/unit/run/test_cell_spec.py, on the words that name an example")
def test_what_random_requests_find_in_the_base_too_is_not_the_changes(checkout: Path, tmp_path: Path) -> None:
    """Regression: a finding of the fuzzer names an example, for which the base ran no test. So it counted as new."""
    opening = "void setbitCommand(client *c) {\n"
    bitops = checkout / "src" / "bitops.c"
    edit(bitops, opening, f"{opening}    if (sizeof(long) == 4) *(volatile char *)16 = 1;\n")
    commit(checkout)
    counted = "void getbitCommand(client *c) {\n"
    edit(bitops, counted, f"{counted}    if (c->argc == 77777) return;\n")
    code, read, errors = premerge(checkout, tmp_path / "run", "--suite", "fuzz")
    crash = next(one for one in read["findings"] if one["id"].endswith("setbitCommand"))
    assert crash["known"].startswith("also in BASE"), errors
    assert all("[" in one["test"] for one in crash["witnesses"])
    assert code != ExitCode.FINDINGS, "what else the fuzzer found is known"
