"""The survey asks `plumb deb` about real packages, here and on workers, and stores what it says.

The tests make the packages with dpkg-source, and store them in the cache as apt would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from harness.core.errors import ExitCode
from harness.core.finding import Verdict
from tests.end_to_end.programs.test_debian_package import BUILDS, package
from tests.end_to_end.programs.test_programs import FAULT_LINE
from tools.survey import __main__ as tool
from tools.survey import document
from tools.survey.document import Package, PackageList

if TYPE_CHECKING:
    from pathlib import Path

    from tools.survey.document import Answer

pytestmark = pytest.mark.end_to_end


def answers(
    monkeypatch: pytest.MonkeyPatch, folder: Path, made: dict[str, str], *options: str
) -> tuple[int, dict[str, Answer]]:
    """Ask about packages, name -> the package and version that `package` made. Returns the status and the answers."""
    listed = PackageList(
        indexed="2026-11-30",
        considered=1,
        libraries=1,
        fitting=1,
        packages=tuple(
            Package(
                name=name,
                version=version,
                dependants=0,
                size_bytes=1,
                libraries=(),
                targets=("armv5",),
            )
            for one in made.values()
            for name, _, version in [one.partition("=")]
        ),
    )
    monkeypatch.setattr(document, "chosen", lambda: listed)
    file = folder / "survey.json"
    result = CliRunner().invoke(tool.main, ["--document", str(file), *options])
    stored = {f"{one.package}={one.version}": one for one in document.read(file).answers}
    return result.exit_code, {name: stored[one] for name, one in made.items()}


def test_a_package_is_built_and_its_fault_is_stored_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"faulty": package({"Makefile": f"{BUILDS}check: odd\n\t./odd exec\n"})}
    code, found = answers(monkeypatch, tmp_path, made, "--keep", str(tmp_path / "kept"))
    assert code == ExitCode.PASS
    one = found["faulty"]
    assert (one.verdict, one.exit_code) == (Verdict.FAIL, ExitCode.FINDINGS)
    assert [(fault.id, fault.place) for fault in one.failing] == [("alignment-odd_load-load", f"odd.c:{FAULT_LINE}")]
    assert one.programs
    kept = tmp_path / "kept" / "odd-armv5"
    assert (kept / "tree" / made["faulty"].replace("=", "-") / "odd").is_file()
    assert (kept / "run" / "findings.json").is_file()
    assert "./odd exec" in (kept / "output.txt").read_text("utf-8")


@pytest.mark.slow(instead="the test above, and tests/tools/test_survey.py, which has no workers")
def test_workers_answer_the_same_also_of_what_cannot_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"lacking": package({"Makefile": f"{BUILDS}\tno-such-tool\ncheck: odd\n\t./odd\n"})}
    code, found = answers(monkeypatch, tmp_path, made, "--on", "local:1", "--run", str(tmp_path / "1"))
    assert (code, found["lacking"].verdict) == (ExitCode.PASS, Verdict.UNKNOWN)
    assert "no-such-tool: No such file" in found["lacking"].reason
    made = {"strange": package({"setup.py": ""})}
    code, found = answers(monkeypatch, tmp_path, made, "--on", "local:1", "--run", str(tmp_path / "2"))
    assert (code, found["strange"].exit_code) == (ExitCode.PASS, ExitCode.USAGE)
    assert "no known build system" in found["strange"].reason
