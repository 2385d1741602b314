"""The instructions in docs/howto for packagers of Debian, Alpine and Buildroot, followed in folders like theirs."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from harness.core.errors import ExitCode
from harness.core.strict_toml import ROOT
from tests.end_to_end.programs.test_programs import SOURCE, odd_program, setup_of
from tests.end_to_end.support import machines
from tests.end_to_end.support.documents import follow
from tests.end_to_end.support.workflows import block_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

HOW_TO = ROOT / "docs" / "howto"
URL = "https://github.com/OWNER/plumbline"
MAKEFILE = "check: odd\n\t./odd $(MODE)\nodd: odd.c\n\t$(CC) -pthread -o $@ $<\n"
APKBUILD = """\
pkgname=odd
pkgver=1
builddir="$srcdir/$pkgname-$pkgver"
build() {
    test "$CHOST" != "$CBUILD"
    make CC="$CC" CFLAGS="$CFLAGS" odd
}
check() {
    make check
    rm odd # the next target has its own
}
"""
COMMAND_SECONDS = 600.0


def tree(folder: Path, mode: str) -> Path:
    """The tree of a program with a test."""
    folder.mkdir(parents=True)
    (folder / "odd.c").write_text(SOURCE, "utf-8")
    (folder / "Makefile").write_text(f"MODE = {mode}\n{MAKEFILE}", "utf-8")
    return folder


def typed(words: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a packager types it, with `plumb` on the path."""
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=COMMAND_SECONDS, check=False
    )


@pytest.mark.parametrize(("mode", "code"), [machines.beyond("clean", ExitCode.PASS), ("odd", ExitCode.FINDINGS)])
def test_the_job_for_salsa_reports_the_result_of_a_packages_tests(tmp_path: Path, mode: str, code: ExitCode) -> None:
    """From a clone that uses the tests' environment, which is the one that its lock file requires."""
    job: dict[str, Any] = yaml.safe_load(block_of(HOW_TO / "debian-package.md"))["plumbline"]
    package = tree(tmp_path / "package", mode)
    git = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.file://{ROOT}.insteadOf", "GIT_CONFIG_VALUE_0": URL}
    lines = [line for line in job["script"] if not line.startswith("apt-get ")]
    assert len(lines) == len(job["script"]) - 2
    for line in lines:
        assert job["parallel"]["matrix"][0]["TARGET"][0] == "armv5"
        finished = typed(["bash", "-e", "-c", line], package, TARGET="armv5", **git)
        if line.startswith("git clone "):
            (tmp_path / "plumbline" / ".venv").symlink_to(ROOT / ".venv")
        expected = code if line == lines[-1] else ExitCode.PASS
        assert finished.returncode == expected, finished.stdout + finished.stderr
    (folder,) = job["artifacts"]["paths"]
    assert (package / folder / "findings.json").is_file()
    report = (package / job["artifacts"]["reports"]["junit"]).read_text("utf-8")
    assert ("alignment-odd_load-load" in report) == (mode == "odd")


def test_the_page_for_debian_works_in_a_packages_tree(tmp_path: Path) -> None:
    follow(HOW_TO / "debian-package.md", tree(tmp_path / "package", "clean"))


# Building an emulator for s390x takes minutes.
@pytest.mark.slow(instead="test_the_page_for_debian_works_in_a_packages_tree; tests/house/test_documents.py")
@pytest.mark.parametrize("stand_ins", [{"s390x": "aarch64"}, machines.beyond({})], ids=["aarch64", "s390x"])
def test_the_functions_of_an_apkbuild_run_for_the_targets_of_the_page(
    tmp_path: Path, stand_ins: dict[str, str]
) -> None:
    page = HOW_TO / "alpine-package.md"
    makefile = tree(tmp_path / "src" / "odd-1", "clean") / "Makefile"
    (tmp_path / "APKBUILD").write_text(APKBUILD, "utf-8")
    (tmp_path / "plumbline.sh").write_text(block_of(page, "bash"), "utf-8")
    follow(page, tmp_path, stand_ins=stand_ins)
    makefile.write_text(makefile.read_text("utf-8").replace("MODE = clean", "MODE = abort"), "utf-8")
    failed = typed(["plumb", "exec", "--target", "armv6", "--", "sh", "plumbline.sh"], tmp_path)
    assert failed.returncode == ExitCode.FINDINGS, failed.stdout + failed.stderr
    assert "crash-odd-SIGABRT" in failed.stdout


@pytest.mark.slow(
    instead=(
        "test_the_job_for_salsa_reports_the_result_of_a_packages_tests; "
        "test_the_page_for_debian_works_in_a_packages_tree"
    )
)
@pytest.mark.parametrize(("mode", "code"), [machines.beyond("clean", ExitCode.PASS), ("odd", ExitCode.FINDINGS)])
def test_the_post_build_script_runs_programs_of_the_image(tmp_path: Path, mode: str, code: ExitCode) -> None:
    image, build = tmp_path / "target", tmp_path / "build"
    build.mkdir()
    for folder in ("lib", "usr/bin"):
        (image / folder).mkdir(parents=True)
    shutil.copy2(odd_program("armv5", "-Wl,--dynamic-linker=/lib/ld-image.so.1"), image / "usr" / "bin" / "my-program")
    usual = setup_of("armv5").guest_root / "lib"
    shutil.copy2(usual / "ld-linux.so.3", image / "lib" / "ld-image.so.1")
    for name in ("libc.so.6", "libpthread.so.0"):
        shutil.copy2(usual / name, image / "lib" / name)
    script = block_of(HOW_TO / "buildroot.md", "bash").replace("--its-own-test", mode)
    assert script != block_of(HOW_TO / "buildroot.md", "bash")
    (tmp_path / "plumbline.sh").write_text(script, "utf-8")
    (tmp_path / ".config").write_text("# BR2_sparc64 is not set\nBR2_arm=y\nBR2_arm926t=y\n", "utf-8")
    given = {"TARGET_DIR": str(image), "BUILD_DIR": str(build), "BR2_CONFIG": str(tmp_path / ".config")}
    # Buildroot builds repeatedly in the same folders.
    for _ in range(2):
        finished = typed(["sh", "plumbline.sh", str(image)], tmp_path, **given)
        assert finished.returncode == code, finished.stdout + finished.stderr
    assert (build / "plumbline" / "findings.json").is_file()
    (tmp_path / ".config").write_text("BR2_xtensa=y\n", "utf-8")
    assert "add this processor" in typed(["sh", "plumbline.sh", str(image)], tmp_path, **given).stderr


def test_the_tables_name_targets_that_exist() -> None:
    catalog = setup_of("armv5").bench.catalog
    for page in ("debian-package.md", "alpine-package.md", "buildroot.md"):
        text = (HOW_TO / page).read_text("utf-8")
        rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")][1:]
        named = {name.strip(" `") for row in rows for name in row[1].split(",")}
        assert named, page
        assert named <= catalog.targets.keys(), page
