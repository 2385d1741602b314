"""ci/release, with a fake hatchling: it refuses a release whose tag, version and changelog do not match."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
import yaml

from harness.build.host_packages import SUITE_PACKAGES
from harness.core.strict_toml import ROOT
from harness.core.target_model import ORACLE
from harness.plan.catalog import Catalog
from tests.support.repositories import git

if TYPE_CHECKING:
    from pathlib import Path

CHANGELOG = """# Changelog

## Unreleased

- later

## 0.1.0 - 2026-12-01

### Added

- a wheel

## 0.0.9 - 2026-01-01

- earlier
"""
BUILD_FAILS = 9


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of version 0.1.0, whose build fails, because the later steps do not matter here."""
    (tmp_path / "ci").mkdir()
    shutil.copy(ROOT / "ci" / "release", tmp_path / "ci")
    (tmp_path / "ci" / "setup").write_text("root=.\nsay() { printf '%s\\n' \"$*\" >&2; }\n", "utf-8")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG, "utf-8")
    program = tmp_path / ".venv" / "bin" / "hatchling"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\n[ "$1" = version ] && echo 0.1.0 || {{ ls -A; exit {BUILD_FAILS}; }}\n', "utf-8")
    program.chmod(0o755)
    (tmp_path / ".gitignore").write_text(".venv\nout\n", "utf-8")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def commit(checkout: Path) -> None:
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "one")


def release(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(checkout / "ci" / "release"), *words], cwd=checkout, capture_output=True, encoding="utf-8", check=False
    )


def test_the_notes_are_the_versions_section_of_the_changelog(checkout: Path) -> None:
    assert release(checkout, "out", "v0.1.0").returncode == BUILD_FAILS
    assert (checkout / "out" / "NOTES.md").read_text("utf-8").strip() == "### Added\n\n- a wheel"


@pytest.mark.parametrize("tag", ["v0.1.1", "0.1.0", "v0.1"])
def test_a_tag_of_another_version_is_refused(checkout: Path, tag: str) -> None:
    ended = release(checkout, "out", tag)
    assert (ended.returncode, f"the tag is {tag}" in ended.stderr) == (4, True), ended.stderr


def test_a_version_without_a_section_is_refused(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.replace("## 0.1.0 ", "## 0.1.01 "), "utf-8")
    commit(checkout)
    ended = release(checkout, "out", "v0.1.0")
    assert (ended.returncode, "no section of 0.1.0" in ended.stderr) == (4, True), ended.stderr


def test_a_folder_that_is_not_empty_is_refused(checkout: Path) -> None:
    """Existing files would be uploaded and attested with the release."""
    (checkout / "out").mkdir()
    (checkout / "out" / "plumbline-old.whl").touch()
    ended = release(checkout, "out")
    assert (ended.returncode, "out is not empty" in ended.stderr) == (4, True), ended.stderr


def test_what_is_in_no_commit_is_in_no_release(checkout: Path) -> None:
    """Regression: a wheel and a source archive contained any file of the checkout, keys and notes included."""
    (checkout / "notes.txt").write_text("mine\n", "utf-8")
    (checkout / "keys").symlink_to("/etc/passwd")
    refused = release(checkout, "out", "v0.1.0")
    assert (refused.returncode, "differs from its commit" in refused.stderr) == (4, True), refused.stderr
    trial = release(checkout, "out")
    assert "left out, as they are in no commit: 2 entries" in trial.stderr
    assert set(trial.stderr.splitlines()) >= {"ci", "CHANGELOG.md"}
    assert not {"notes.txt", "keys", ".venv"} & set(trial.stderr.splitlines())


def test_a_draft_needs_the_containers_verdict_and_a_tag() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))["jobs"]
    assert set(jobs["draft"]["needs"]) == jobs.keys() - {"draft"}
    assert jobs["draft"]["if"] == "github.event_name == 'push'"
    assert [name for name, job in jobs.items() if "permissions" in job] == ["draft"], "no other job may write"


def test_the_container_copies_the_files_of_a_release() -> None:
    lines = (ROOT / "ci" / "Containerfile").read_text("utf-8").replace("\\\n", " ").splitlines()
    copied = [line.split()[1] for line in lines if line.startswith("COPY")]
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    made = set(re.findall(r"ci/release (\S+)", workflow))
    assert {source.rpartition("/")[0] for source in copied} == made
    assert "--file ci/Containerfile" in workflow


def test_the_debian_package_has_the_version_of_the_wheel_and_does_not_strip_the_emulators() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    folder = ROOT / "ci" / "debian"
    assert (folder / "changelog").read_text("utf-8").startswith(f"plumbline ({version}) ")
    # A stripped emulator no longer has the digest that its wheel declares, and would be rejected.
    assert re.search(r"^override_dh_strip\b.*:$", (folder / "rules").read_text("utf-8"), re.MULTILINE)


def test_the_debian_package_depends_on_the_packages_that_each_check_needs() -> None:
    control = (ROOT / "ci" / "debian" / "control").read_text("utf-8")
    listed = re.search(r"^Depends: (.*)$", control, re.MULTILINE)
    assert listed is not None
    catalog = Catalog()
    native = catalog.toolchain_of(catalog.targets[ORACLE])
    assert {*SUITE_PACKAGES, *native.packages} <= set(listed[1].split(", "))


def test_the_debian_package_suggests_the_compilers_of_the_required_targets() -> None:
    control = (ROOT / "ci" / "debian" / "control").read_text("utf-8")
    listed = re.search(r"^Suggests: (.*)$", control, re.MULTILINE)
    assert listed is not None
    catalog = Catalog()
    required = [catalog.targets[name] for name in catalog.select_targets(("required",))]
    assert {name for target in required for name in catalog.toolchain_of(target).packages} < set(listed[1].split(", "))


class Installed:
    """A folder like that of the installed Debian package, in which its maintainer scripts can run."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "plumbline"
        self.modules = self.home / "lib" / "python3.11" / "site-packages"
        for name in ("harness", "other"):
            (self.modules / name).mkdir(parents=True)
            (self.modules / name / "module.py").write_text("one = 1\n", "utf-8")
        (self.home / "bin").mkdir()
        (self.home / "bin" / "python").symlink_to(sys.executable)

    def maintain(self, script: str, action: str) -> int:
        """Run a maintainer script. Returns its exit status."""
        text = (ROOT / "ci" / "debian" / script).read_text("utf-8").replace("/usr/lib/plumbline", str(self.home))
        return subprocess.run(["sh", "-c", text, script, action], check=False, stderr=subprocess.DEVNULL).returncode

    def compiled(self) -> set[str]:
        """The packages whose module is compiled."""
        return {path.parent.parent.name for path in self.home.rglob("module.*.pyc")}


def test_the_debian_package_removes_the_files_that_it_compiled(plain_path: Path) -> None:
    """Otherwise dpkg would leave the files that it does not know, and their folders."""
    installed = Installed(plain_path)
    before = set(installed.home.rglob("*"))
    assert installed.maintain("postinst", "configure") == 0
    assert installed.compiled() == {"harness", "other"}
    assert installed.maintain("prerm", "remove") == 0
    assert set(installed.home.rglob("*")) == before


def test_one_module_that_does_not_compile_is_tolerated_and_a_failure_of_all_is_not(plain_path: Path) -> None:
    installed = Installed(plain_path)
    later = installed.modules / "other" / "later.py"
    later.write_text("one = = 1\n", "utf-8")
    assert installed.maintain("postinst", "configure") == 0
    assert installed.compiled() == {"harness", "other"}
    # compileall considers a module that was rewritten within the same second to be unchanged.
    assert installed.maintain("prerm", "upgrade") == 0
    (installed.modules / "harness" / "module.py").write_text("one = = 1\n", "utf-8")
    assert installed.maintain("postinst", "configure") != 0
    (installed.home / "bin" / "python").unlink()
    assert installed.maintain("postinst", "configure") != 0
