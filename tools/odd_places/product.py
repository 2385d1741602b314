"""What a person does with the product, in a place: a check, its judgement again, a replay, a report, a program of
one's own, and the plan of a premerge. The commands are those that Plumbline prints, pasted into a shell.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from harness.core.cache import default_root
from harness.core.errors import ExitCode
from harness.core.processes import process
from tests.support.repositories import commit, git
from tools.odd_places import start
from tools.odd_places.place import ODD, started, user_of

if TYPE_CHECKING:
    from pathlib import Path

    from tools.odd_places.place import Place
    from tools.odd_places.runs import Settings

SERVER, TARGET, FINDING = "redis-3.2.6", "armv5", "alignment-bitopCommand-load"
"""A release with a known bug on a target."""
STEP_SECONDS = 1800.0
"""Of one command. Without a cache, the check compiles an emulator and servers."""
LEFT_OUT = (
    "ccache",
    "kept-work",
    "kernels",
    "locks",
    "logs",
    "mutants",
    "translations",
    "upstream-*",
    "work",
    "linux-*",
)
"""What a check of the release does not use of a cache, and the locks of other commands."""
SMALLEST_PAGE = 20_000
PROGRAM = """\
#include <stdio.h>
int main(int count, char **words)
{
    char bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    volatile int *misaligned = (int *)(bytes + 1);
    printf("%d %s\\n", *misaligned, words[count - 1]);
    return 0;
}
"""
BUILD = '$CC -g -o "a prögram" "a prögram.c" && ./"a prögram" "it\'s"\n'


class Product:
    """The product in one place."""

    def __init__(self, place: Place, settings: Settings, log: Path) -> None:
        self._place = place
        self._settings = settings
        self._log = log
        self._folder = place.aside / "work" / ODD
        self._failed: list[str] = []

    def failed_steps(self) -> list[str]:
        """Do everything. Returns a line for each step that did not do what it should."""
        cache = self._place.aside / "cache"
        if default_root().is_dir():
            shutil.copytree(default_root(), cache, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        tree = self._checkout(cache)
        (self._folder / "a prögram.c").write_text(PROGRAM, "utf-8")
        (self._folder / "build.sh").write_text(BUILD, "utf-8")
        self._place.belong_to(self._settings, again=True)
        run, own = self._folder / "the run's folder", self._folder / "of a program"
        plumb = [f"{self._place.checkout}/.venv/bin/plumb"]
        target = ["--target", TARGET]
        check = [*plumb, "check", "--server", SERVER, "--suite", "bitops", *target, "--run", str(run)]
        said = self._step("check", check, ExitCode.FINDINGS, FINDING, "FAIL: ")
        self._step("judge", [*plumb, "judge", str(run)], ExitCode.FINDINGS, FINDING)
        self._replay("replay", said, FINDING)
        self._step("report", [*plumb, "report", str(run)], ExitCode.PASS, "report.html")
        page = run / "report.html"
        if not page.is_file() or len(page.read_text("utf-8")) < SMALLEST_PAGE or FINDING not in page.read_text("utf-8"):
            self._failed.append(f"report: {page} is not a page with the finding")
        program = [*plumb, "exec", *target, "--run", str(own), "sh", "build.sh"]
        said = self._step("exec", program, ExitCode.FINDINGS, "alignment-main-load")
        self._replay("replay of exec", said, "alignment-main-load")
        if tree is not None:
            words = [*plumb, "premerge", "--server", str(tree), *target, "--explain"]
            self._step("premerge", words, ExitCode.PASS, "src/bitops.c")
        return self._failed

    def _checkout(self, cache: Path) -> Path | None:
        """A checkout of the release with a change, if the cache has the release."""
        self._folder.mkdir(parents=True)
        source = next((path for path in (cache / "sources").glob(f"{SERVER}-*") if path.is_dir()), None)
        if source is None:
            self._failed.append(f"premerge: the cache has no {SERVER}")
            return None
        tree = self._folder / SERVER
        shutil.copytree(source, tree, symlinks=True)
        git(tree, "init", "--quiet")
        base = commit(tree)
        git(tree, "update-ref", "refs/remotes/origin/unstable", base)
        with (tree / "src" / "bitops.c").open("a", encoding="utf-8") as stream:
            stream.write("int changed;\n")
        return tree

    def _replay(self, name: str, said: str, finding: str) -> None:
        """Paste the command for a finding, as it was printed."""
        printed = re.search(rf"^ +replay +(\S.*{finding}\S*)$", said, re.MULTILINE)
        if printed is None:
            self._failed.append(f"{name}: no command is printed for {finding}")
            return
        self._step(name, ["bash", "-c", printed[1]], ExitCode.FINDINGS, f"reproduced: {finding}")

    def _step(self, name: str, words: list[str], code: int, *signs: str) -> str:
        """Run a command, which must end with this status and print these. Returns what it printed, without colours."""
        orders = start.Orders.of(self._settings, str(self._folder), user_of(self._settings))
        variables = {**self._place.environment(self._settings), "PLUMBLINE_CACHE": str(self._place.aside / "cache")}
        ended = process.run(started(orders, words), deadline_seconds=STEP_SECONDS, log=self._log, environment=variables)
        text = re.sub(r"\x1b\[[0-9;]*m|\r", "", ended.text)
        if ended.code != code:
            self._failed.append(f"{name}: it ended with {ended.code} and not with {code}")
        # A narrow terminal wraps what is not made to be pasted.
        joined = "".join(text.split())
        self._failed += [f"{name}: it does not say {sign!r}" for sign in signs if "".join(sign.split()) not in joined]
        return text
