"""ci/setup, with fake programs in place of Python."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.strict_toml import ROOT
from tests.support.repositories import git


def test_an_activated_environment_is_not_made_by_its_own_python(tmp_path: Path) -> None:
    """Regression: an environment with a stale lock is removed first, and its Python with it."""
    (tmp_path / "ci").mkdir()
    shutil.copy(ROOT / "ci" / "setup", tmp_path / "ci")
    for name in ("requirements.txt", "pyproject.toml"):
        (tmp_path / name).touch()
    inside, outside = tmp_path / ".venv" / "bin", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        python = folder / "python3"
        python.write_text(f'#!/bin/sh\necho "$@" >>{shlex.quote(str(tmp_path))}/{folder.name}.asked\n', "utf-8")
        python.chmod(0o755)
    subprocess.run(
        ["bash", "-c", ". ci/setup"],
        cwd=tmp_path,
        env={"PATH": f"{inside}:{outside}:{os.environ['PATH']}"},
        capture_output=True,
        check=False,
    )
    assert not (tmp_path / "bin.asked").exists()
    assert "-m venv" in (tmp_path / "outside.asked").read_text("utf-8")


def test_an_environment_is_recreated_only_if_its_inputs_change(tmp_path: Path) -> None:
    """A tool's settings do not count: a changed line length would remove the environment of running commands."""
    (tmp_path / "ci").mkdir()
    shutil.copy(ROOT / "ci" / "setup", tmp_path / "ci")
    (tmp_path / "requirements.txt").touch()
    python = tmp_path / "outside" / "python3"
    python.parent.mkdir()
    copies = 'mkdir -p .venv/bin; cp "$0" .venv/bin/python; cp "$0" .venv/bin/plumb'
    python.write_text(f'#!/bin/sh\ncase "$*" in "-I -m venv"*) echo made >>asked; {copies};; esac\n', "utf-8")
    python.chmod(0o755)

    def made(scripts: str, length: int) -> int:
        text = f"[project.scripts]\nplumb = '{scripts}'\n\n[tool.ruff]\nline-length = {length}\n"
        (tmp_path / "pyproject.toml").write_text(text, "utf-8")
        environment = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
        subprocess.run(["bash", "-c", ". ci/setup"], cwd=tmp_path, env=environment, capture_output=True, check=True)
        return (tmp_path / "asked").read_text("utf-8").count("made")

    assert [made("old:main", 120), made("old:main", 100), made("new:main", 100)] == [1, 1, 2]


def test_setting_up_imports_nothing_from_the_callers_folder(tmp_path: Path) -> None:
    """Regression: a pull request's pip.py, in the folder from which the action sets up, ran before any check."""
    (tmp_path / "ci").mkdir()
    shutil.copy(ROOT / "ci" / "setup", tmp_path / "ci")
    for name in ("requirements.txt", "pyproject.toml"):
        (tmp_path / name).touch()
    python = tmp_path / "outside" / "python3"
    python.parent.mkdir()
    copies = 'mkdir -p .venv/bin; cp "$0" .venv/bin/python; cp "$0" .venv/bin/plumb'
    asked = shlex.quote(str(tmp_path / "asked"))
    python.write_text(f'#!/bin/sh\necho "$*" >>{asked}\ncase "$*" in *"-m venv"*) {copies};; esac\n', "utf-8")
    python.chmod(0o755)
    environment = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", ". ci/setup"], cwd=tmp_path, env=environment, capture_output=True, check=True)
    called = (tmp_path / "asked").read_text("utf-8").splitlines()
    assert [line for line in called if not line.startswith("-I ")] == []
    assert sum("-m pip install" in line for line in called) == 2


def test_the_harness_is_compiled_into_the_folder_that_isolated_processes_use(tmp_path: Path) -> None:
    """The caller's environment does not matter, because the processes of cells do not read it."""
    for name in ("ci", "harness", "elsewhere"):
        (tmp_path / name).mkdir()
    shutil.copy(ROOT / "ci" / "setup", tmp_path / "ci")
    for name in ("requirements.txt", "pyproject.toml", "harness/module.py"):
        (tmp_path / name).touch()
    python = tmp_path / "outside" / "python3"
    python.parent.mkdir()
    copies = 'mkdir -p .venv/bin; cp "$0" .venv/bin/python; cp "$0" .venv/bin/plumb'
    compiles = f'*compileall*) exec {shlex.quote(sys.executable)} "$@"'
    python.write_text(f'#!/bin/sh\ncase "$*" in "-I -m venv"*) {copies};; {compiles};; esac\n', "utf-8")
    python.chmod(0o755)
    environment = {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPYCACHEPREFIX": str(tmp_path / "elsewhere"),
    }

    def set_up() -> None:
        subprocess.run(["bash", "-c", ". ci/setup"], cwd=tmp_path, env=environment, capture_output=True, check=True)

    set_up()
    assert [file.name.partition(".")[0] for file in (tmp_path / "harness" / "__pycache__").iterdir()] == ["module"]
    # A file that cannot be written is not a reason to stop.
    shutil.rmtree(tmp_path / "harness")
    set_up()


def test_programs_start_in_a_folder_whose_name_means_something_to_a_shell(tmp_path: Path) -> None:
    """Programs as pip writes them start only if the path needs no more quotes than a space does."""
    folder = tmp_path / 'the "$HOME" of \\plumb'
    (folder / "ci").mkdir(parents=True)
    shutil.copy(ROOT / "ci" / "setup", folder / "ci")
    for name in ("requirements.txt", "pyproject.toml"):
        (folder / name).touch()
    python = tmp_path / "outside" / "python3"
    python.parent.mkdir()
    # What pip writes, and what the linter's wheel has.
    written = (
        f"#!/bin/sh\n'''exec' \"{folder}/.venv/bin/python\" \"$0\" \"$@\"\n' '''\nimport sys\nprint(sys.argv[1:])\n"
    )
    (tmp_path / "written").write_text(written, "utf-8")
    makes = f"mkdir -p .venv/bin; ln -s {shlex.quote(sys.executable)} .venv/bin/python; cp /bin/true .venv/bin/linter"
    program = f"install -m 755 {shlex.quote(str(tmp_path))}/written .venv/bin/plumb"
    python.write_text(f'#!/bin/sh\ncase "$*" in "-I -m venv"*) {makes}; {program};; esac\n', "utf-8")
    python.chmod(0o755)
    environment = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    # The environment is a fake, without pip.
    text = (folder / "ci" / "setup").read_text("utf-8").replace('"$root/.venv/bin/python" -I -m pip', "true -m pip")
    (folder / "ci" / "setup").write_text(text, "utf-8")
    subprocess.run(["bash", "-c", ". ci/setup"], cwd=folder, env=environment, capture_output=True, check=True)
    link = tmp_path / "plumb"
    link.symlink_to(folder / ".venv" / "bin" / "plumb")
    for path in (folder / ".venv" / "bin" / "plumb", link):
        said = subprocess.run([path, "a b", 'c"d'], capture_output=True, encoding="utf-8", check=True).stdout
        assert said == "['a b', 'c\"d']\n"
    subprocess.run([folder / ".venv" / "bin" / "linter"], check=True)


def test_the_project_is_found_in_a_folder_whose_name_is_not_ascii_and_in_every_locale(tmp_path: Path) -> None:
    """Python reads the file that names an editable project's folder in the encoding of the locale."""
    folder = tmp_path / "plömb"
    (folder / "ci").mkdir(parents=True)
    shutil.copy(ROOT / "ci" / "setup", folder / "ci")
    for name in ("requirements.txt", "pyproject.toml", "a_module_of_it.py"):
        (folder / name).touch()
    python = tmp_path / "outside" / "python3"
    python.parent.mkdir()
    # pip writes the file, and hatchling names it.
    packages = f".venv/lib/python3.{sys.version_info.minor}/site-packages"
    writes = f"{shlex.quote(str(Path(sys.executable).resolve()))} -m venv --without-pip .venv"
    names = f'pwd >{packages}/_plumbline.pth; cp "$0" .venv/bin/plumb'
    python.write_text(f'#!/bin/sh\ncase "$*" in "-I -m venv"*) {writes}; {names};; esac\n', "utf-8")
    python.chmod(0o755)
    text = (folder / "ci" / "setup").read_text("utf-8").replace('"$root/.venv/bin/python" -I -m pip', "true -m pip")
    (folder / "ci" / "setup").write_text(text, "utf-8")
    environment = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", ". ci/setup"], cwd=folder, env=environment, capture_output=True, check=True)
    for locale in ("C", "C.UTF-8"):
        words: list[str | Path] = [
            folder / ".venv" / "bin" / "python",
            "-I",
            "-c",
            "import a_module_of_it as one; print(one.__file__)",
        ]
        said = subprocess.run(words, env={"LC_ALL": locale}, capture_output=True, encoding="utf-8", check=True).stdout
        assert Path(said.strip()) == folder / "a_module_of_it.py"


def test_a_clone_has_the_bytes_of_the_repository_whatever_git_converts(tmp_path: Path) -> None:
    """With carriage returns no script of the project starts."""
    (tmp_path / "one" / "ci").mkdir(parents=True)
    for name in (".gitattributes", "ci/setup"):
        shutil.copy(ROOT / name, tmp_path / "one" / name)

    converting = ("-c", "core.autocrlf=true")
    git(tmp_path / "one", "init", "--quiet")
    git(tmp_path / "one", *converting, "add", "--all")
    git(tmp_path / "one", "commit", "--quiet", "--message", "x")
    git(tmp_path, *converting, "clone", "--quiet", "one", "two")
    assert (tmp_path / "two" / "ci" / "setup").read_bytes() == (ROOT / "ci" / "setup").read_bytes()


@pytest.mark.parametrize(
    "variables",
    [{"PYTHONPATH": "stranger"}, {"PYTHONHOME": "/none"}, {"PYTHONINSPECT": "1"}],
    ids=["another package named harness", "another home", "a shell at the end"],
)
def test_pythons_variables_do_not_reach_the_command(tmp_path: Path, variables: dict[str, str]) -> None:
    """Regression: a package named `harness` on PYTHONPATH ended as a traceback and status 1, which means findings."""
    package = tmp_path / "stranger" / "harness"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    finished = subprocess.run(
        [Path(sys.executable).with_name("plumb"), "--version"],
        cwd=tmp_path,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.startswith("plumb, version ")
