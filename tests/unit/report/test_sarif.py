"""findings.sarif is valid SARIF 2.1.0, and its results can be matched from run to run."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest

from harness.core.finding import Frame, ValueComparison
from harness.report.formats import sarif
from tests.support import fakes
from tests.support.judgements import HOSTILE, cell, judgement, only_canaries

SCHEMA = json.loads((fakes.DATA / "schemas" / "sarif-schema-2.1.0.json").read_text("utf-8"))


def run_of(whole: Any) -> dict[str, Any]:
    """The only run of a document that the official schema accepts."""
    read = json.loads(sarif.render(whole))
    jsonschema.Draft4Validator(SCHEMA).validate(read)
    (run,) = read["runs"]
    assert isinstance(run, dict)
    return run


def test_the_vendored_schema_refuses_what_is_not_sarif() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(SCHEMA).validate({"version": "2.1.0", "runs": [{"tool": {}}]})


def test_a_result_has_rule_region_function_and_targets() -> None:
    run = run_of(judgement())
    (result,) = run["results"]
    (rule,) = run["tool"]["driver"]["rules"]
    assert (rule["id"], rule["id"]) == (result["ruleId"], run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"])
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "src/bitops.c", "uriBaseId": "SRCROOT"},
        "region": {"startLine": 452},
    }
    assert location["logicalLocations"][0]["name"] == "bitopCommand"
    assert (result["level"], result["properties"]["targets"]) == ("error", ["armv5"])
    assert [frame["location"]["logicalLocations"][0]["name"] for frame in result["stacks"][0]["frames"]] == [
        "bitopCommand",
        "call",
        "main",
    ]


def test_each_related_place_of_a_result_has_a_number_of_its_own() -> None:
    whole = judgement()
    finding = whole.findings[0]
    frames = [[msgspec.structs.replace(finding.witnesses[0].backtrace[0], line=line)] for line in (460, 470)]
    more = [
        msgspec.structs.replace(finding.witnesses[0], target=target, line=stack[0].line, backtrace=stack)
        for target, stack in zip(("sparc64", "armv6"), frames, strict=True)
    ]
    parted = Frame(function="setbitCommand", file="src/bitops.c", line=500, origin="server", pc=1)
    comparison = ValueComparison(last_equal="", first_different="", differences=[], within="", compared=0, place=parted)
    found = msgspec.structs.replace(finding, witnesses=[*finding.witnesses, *more], comparison=comparison)
    (result,) = run_of(msgspec.structs.replace(whole, findings=[found]))["results"]
    lines = [one["physicalLocation"]["region"]["startLine"] for one in result["relatedLocations"]]
    assert lines == [452, 460, 470, 500]
    assert [one["id"] for one in result["relatedLocations"]] == [1, 2, 3, 4]


def test_paths_are_relative_to_the_repositorys_top_folder() -> None:
    read = json.loads(sarif.render(msgspec.structs.replace(judgement(), place="third party/redis")))
    uris = {
        word["artifactLocation"]["uri"]
        for result in read["runs"][0]["results"]
        for place in [*result["locations"], *result["relatedLocations"]]
        for word in [place["physicalLocation"]]
    }
    assert uris == {"third%20party/redis/src/bitops.c"}
    (stack,) = read["runs"][0]["results"][0]["stacks"]
    assert stack["frames"][0]["location"]["physicalLocation"]["artifactLocation"]["uri"] in uris


def test_the_fingerprint_that_code_scanning_reads_is_the_findings_identity() -> None:
    whole = judgement()
    (result,) = run_of(whole)["results"]
    assert result["partialFingerprints"]["primaryLocationLineHash"] == sarif.fingerprint(whole.findings[0])


def test_a_fingerprint_depends_on_the_identity_and_not_on_line_target_or_address() -> None:
    whole = judgement()
    finding = whole.findings[0]
    frame = msgspec.structs.replace(finding.witnesses[0].backtrace[0], pc=99, line=460)
    witness = msgspec.structs.replace(finding.witnesses[0], target="sparc64", line=460, backtrace=[frame])
    moved = msgspec.structs.replace(finding, line=460, targets=["sparc64"], witnesses=[witness])
    other = msgspec.structs.replace(finding, id="alignment-bitopCommand-store")
    prints = [
        run_of(msgspec.structs.replace(whole, run=f"/other/{n}", seed=n, findings=[one]))["results"][0]["fingerprints"]
        for n, one in enumerate((finding, moved, other))
    ]
    assert prints[0] == prints[1] != prints[2]
    assert sarif.fingerprint(finding) in prints[0].values()


def test_no_path_is_absolute_and_odd_names_are_escaped() -> None:
    whole = judgement()
    finding = whole.findings[0]
    odd = Frame(function="f", file="src/a b%#?.c", line=3, origin="server", pc=1)
    outside = Frame(function="memcpy", file="/usr/include/string.h", line=9, origin="libc", pc=1)
    witness = msgspec.structs.replace(finding.witnesses[0], file="/usr/include/string.h", backtrace=[outside, odd])
    run = run_of(msgspec.structs.replace(whole, findings=[msgspec.structs.replace(finding, witnesses=[witness])]))
    text = json.dumps(run["results"][0]["locations"] + run["results"][0]["relatedLocations"])
    assert "/usr/include" not in text
    # A fault in libc is shown at the place where the server called libc.
    assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "src/a%20b%25%23%3F.c"
    assert "uri" not in run["originalUriBaseIds"]["SRCROOT"]


def test_a_finding_without_a_place_is_a_notification_and_not_a_result() -> None:
    whole = judgement()
    witness = msgspec.structs.replace(whole.findings[0].witnesses[0], file="", line=0, backtrace=[])
    placeless = msgspec.structs.replace(whole.findings[0], kind="wrong-result", file="", line=0, witnesses=[witness])
    run = run_of(msgspec.structs.replace(whole, findings=[placeless]))
    assert run["results"] == []
    notes = [note for note in run["invocations"][0]["toolExecutionNotifications"] if note["level"] == "error"]
    assert [note["message"]["text"].split(":")[0] for note in notes] == [placeless.id]


def test_a_wrong_result_is_placed_at_the_function_that_it_points_to() -> None:
    whole = judgement()
    handler = Frame(function="setCommand", file="src/t_string.c", line=9, origin="server", pc=0)
    witness = msgspec.structs.replace(whole.findings[0].witnesses[0], file="", line=0, backtrace=[])
    wrong = msgspec.structs.replace(
        whole.findings[0], kind="wrong-result", file="", line=0, witnesses=[witness], implicated=handler
    )
    (result,) = run_of(msgspec.structs.replace(whole, findings=[wrong]))["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("src/t_string.c", 9)


def test_unknown_is_not_a_success_and_names_the_cells() -> None:
    whole = judgement()
    silent = msgspec.structs.replace(whole, verdict="UNKNOWN", findings=[])
    (invocation,) = run_of(silent)["invocations"]
    assert not invocation["executionSuccessful"]
    assert [note["message"]["text"].split(":")[0] for note in invocation["toolExecutionNotifications"]] == [
        "FAIL armv5/bitops",
        "UNKNOWN sparc64/canary",
        "UNKNOWN sparc64/bitops",
    ]


def test_an_inconclusive_run_has_its_reasons_even_without_an_unknown_cell() -> None:
    (invocation,) = run_of(only_canaries())["invocations"]
    assert not invocation["executionSuccessful"]
    notes = [(note["level"], note["message"]["text"]) for note in invocation["toolExecutionNotifications"]]
    assert notes == [("warning", "the run did not end"), ("warning", "no tests ran except the canaries")]


def test_a_failure_that_the_evidence_does_not_explain_is_an_error() -> None:
    cells = [cell("armv5", "canary", "PASS"), cell("armv5", "bitops", "FAIL", "1 tests failed")]
    (invocation,) = run_of(msgspec.structs.replace(judgement(), cells=cells, findings=[]))["invocations"]
    (note,) = invocation["toolExecutionNotifications"]
    assert (note["level"], note["message"]["text"]) == ("error", "FAIL armv5/bitops: 1 tests failed")


def test_jobs_of_a_matrix_have_different_categories() -> None:
    whole = judgement()
    jobs = [
        msgspec.structs.replace(whole, cells=[cell for cell in whole.cells if cell.target == target])
        for target in ("armv5", "sparc64")
    ]
    assert [run_of(job)["automationDetails"]["id"] for job in jobs] == [
        "plumbline/signal/armv5/",
        "plumbline/signal/sparc64/",
    ]
    by_tcp = run_of(msgspec.structs.replace(jobs[0], io="tcp"))
    assert by_tcp["automationDetails"]["id"] == "plumbline/signal/tcp/armv5/"


def test_a_known_finding_is_suppressed_with_its_reason() -> None:
    whole = judgement()
    known = msgspec.structs.replace(whole.findings[0], known="fixed upstream")
    (result,) = run_of(msgspec.structs.replace(whole, findings=[known]))["results"]
    assert (result["level"], result["suppressions"][0]["justification"]) == ("note", "fixed upstream")


@pytest.mark.parametrize(
    ("detector", "fate", "kind", "level"),
    [
        ("signal", "fixup", "alignment", "error"),
        ("audit", "kill", "alignment", "error"),
        ("audit", "rotated", "alignment", "error"),
        ("audit", "fixup", "alignment", "warning"),
        ("audit", "hardware", "alignment", "note"),
        ("ubsan", "", "undefined-shift", "warning"),
        ("asan", "", "asan-heap-buffer-overflow", "error"),
        ("valgrind", "", "memcheck-uninitialised-use", "warning"),
        ("suite", "", "wrong-result", "error"),
    ],
)
def test_a_level_depends_on_detector_and_fate(detector: str, fate: Any, kind: str, level: str) -> None:
    whole = judgement()
    witness = msgspec.structs.replace(whole.findings[0].witnesses[0], detector=detector, fate=fate)
    finding = msgspec.structs.replace(whole.findings[0], kind=kind, witnesses=[witness])
    (result,) = run_of(msgspec.structs.replace(whole, findings=[finding]))["results"]
    assert result["level"] == level


def test_a_hostile_server_puts_no_link_and_no_control_into_a_message() -> None:
    (result,) = run_of(judgement(title=HOSTILE + "[a](http://x)", reason=HOSTILE))["results"]
    text = result["message"]["text"]
    assert "](" not in text
    assert [character for character in text if not character.isprintable() and character != "\n"] == []
