"""The commands that `plumb` prints can be pasted: they begin with the words that run this program."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from harness.cli import invocation
from harness.cli.group import plumb as group
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.costly

INSTALLED = Path(sys.executable).with_name("plumb")


def output_of(words: list[str | Path], folder: Path, **environment: str) -> process.Result:
    """The output of a command that fails, or that reads a stored run."""
    own = {**os.environ, "PLUMBLINE_CACHE": str(folder / "cache"), **environment}
    return process.run(words, deadline_seconds=60, folder=folder, environment=own)


def hint(ended: process.Result) -> str:
    (line,) = [line for line in ended.text.splitlines() if line.startswith("  try: ")]
    return line.removeprefix("  try: ")


@pytest.mark.parametrize("way", ["by its path", "from elsewhere", "by its name", "as a module", "through a folder"])
def test_a_hint_names_the_program_in_a_form_that_works_here(tmp_path: Path, way: str) -> None:
    venv = tmp_path / "a checkout" / ".venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "plumb").symlink_to(INSTALLED)
    here = venv.parents[1]
    (here / "ci").mkdir()
    plain = os.environ["PATH"].replace(str(INSTALLED.parent), "/nowhere")
    ways: dict[str, tuple[list[str | Path], Path, str, str]] = {
        "by its path": ([Path(".venv/bin/plumb")], here, plain, ".venv/bin/plumb"),
        "from elsewhere": ([venv / "plumb"], tmp_path / "cache", plain, shlex.quote(str(venv / "plumb"))),
        "by its name": (["plumb"], tmp_path, f"{venv}:{plain}", "plumb"),
        "as a module": ([sys.executable, "-m", "harness.cli"], ROOT, plain, ""),
        # ci/check calls it in this way.
        "through a folder": ([here / "ci" / ".." / ".venv" / "bin" / "plumb"], here, plain, ".venv/bin/plumb"),
    }
    words, folder, path, expected = ways[way]
    folder.mkdir(exist_ok=True)
    program, _, rest = hint(output_of([*words, "chekc"], folder, PATH=path)).rpartition(" --help")
    assert rest == ""
    if expected:
        assert program == expected
    again = output_of(["sh", "-c", f"{program} --version"], folder, PATH=path)
    assert (again.code, "version" in again.text) == (0, True), again.text


def test_the_terminal_names_the_program_and_stored_documents_say_plumb(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run")
    stored.canary("armv5")
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message="1 != 2")
    folder = stored.finish()
    path = os.environ["PATH"].replace(str(INSTALLED.parent), "/nowhere")
    command = shlex.quote(str(INSTALLED))
    for words in (("judge", folder), ("show", folder, "wrong-result-test_bitop")):
        shown = output_of([INSTALLED, *words], tmp_path, PATH=path).text
        (line,) = [line for line in shown.splitlines() if " replay " in line]
        typed = line.split("replay", 1)[1].strip()
        assert typed.startswith(f"{command} replay "), line
        assert shlex.split(typed)[2].startswith(f"{folder}/reproducers/"), line
    for name in ("findings.json", "summary.md", "junit.xml", "findings.sarif"):
        text = (folder / name).read_text("utf-8")
        assert ("plumb replay" in text, str(INSTALLED) in text) == (True, False), name
    document = output_of([INSTALLED, "judge", folder, "--json"], tmp_path, PATH=path).output
    (finding,) = json.loads(document[document.index(b"{") : document.rindex(b"}") + 1])["findings"]
    assert finding["replay"].startswith("plumb replay ")


def test_a_word_that_is_not_a_command_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invocation, "program", lambda: "bin/plumb")
    text = "plumb list; `plumb --debug x`; /opt/plumb list; plumb-line x; a plumb, plumb 7"
    assert invocation.runnable(text) == text.replace("plumb list;", "bin/plumb list;", 1).replace(
        "`plumb --debug", "`bin/plumb --debug"
    )


COMMAND = re.compile(r"(?<![\w./-])plumb ([a-z][a-z-]*)((?: (?:--?[a-z-]+|[a-z]+(?![\w;,])|[A-Z]+|…|>|\{\}))*)")


def texts_of(node: ast.AST) -> Iterator[str]:
    """The literal texts of an expression, with `{}` in place of values."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for inner in ast.iter_child_nodes(node):
            yield from texts_of(inner)


def hints() -> set[str]:
    """Every remedy in the code that names a command."""
    found = set()
    for path in (ROOT / "harness").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            given = node.value if isinstance(node, ast.keyword) and node.arg == "remedy" else None
            if isinstance(node, ast.Assign) and "remedy" in ast.unparse(node.targets[0]):
                given = node.value
            if given is not None:
                found |= {text for text in texts_of(given) if "plumb " in text}
    return found


def test_every_command_that_a_hint_names_exists_with_its_options_and_arguments() -> None:
    named = [found for text in hints() for found in COMMAND.findall(text)]
    assert len(named) > 15
    for name, rest in named:
        assert name in group.commands, f"plumb {name}{rest}"
        command, words = group.commands[name], rest.split()
        options = {option: one for one in command.params if isinstance(one, click.Option) for option in one.opts}
        # The following words belong to another program.
        own = words[: words.index("--")] if "--" in words else words
        for word in own:
            assert not word.startswith("--") or word in options, f"plumb {name}{rest}"
        required = [one for one in command.params if isinstance(one, click.Argument) and one.required]
        given = [word for word in words if not word.startswith("-")]
        assert len(given) >= len(required), f"plumb {name}{rest} lacks {required[0].name}"


def pips_script(*options: str) -> str:
    """What pip writes for an installed wheel whose Python has a long path or a space in it, without the option -I of a
    checkout's own. `options`: of Python.
    """
    command = shlex.join([sys.executable, *options])
    start = f"""#!/bin/sh\n'''exec' {command} "$0" "$@"\n' '''\n"""
    return f"{start}import sys\nfrom harness.cli.console_script import main\nsys.exit(main())\n"


@pytest.mark.parametrize("settings", [{"PYTHONPATH": "@"}, {"PYTHONINSPECT": "1"}, {"PYTHONPATH": "@/none:"}])
def test_an_installed_wheel_obeys_none_of_the_callers_settings_of_python(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    """Regression: a module named json below PYTHONPATH decided the exit status, which was 0 before anything ran."""
    for name in ("json", "click", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(0)\n", "utf-8")
    script = tmp_path / "bin" / "plumb"
    script.parent.mkdir()
    script.write_text(pips_script(), "utf-8")
    script.chmod(0o755)
    named = {name: text.replace("@", str(tmp_path)) for name, text in settings.items()}
    ended = output_of([script, "list", "suites"], tmp_path / "bin", **named)
    assert (ended.code, "bitops" in ended.text) == (0, True), ended.text


def test_an_installation_that_only_pythonpath_names_is_found(tmp_path: Path) -> None:
    """`pip install --target FOLDER` makes one."""
    script = tmp_path / "plumb"
    script.write_text(pips_script("-S"), "utf-8")
    script.chmod(0o755)
    packages = Path(click.__file__).parents[1]
    ended = output_of([script, "list", "suites"], tmp_path, PYTHONPATH=f"{ROOT}:{packages}")
    assert (ended.code, "bitops" in ended.text) == (0, True), ended.text
