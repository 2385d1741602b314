"""What Debian's files say about how it builds and tests a package: debian/rules, a makefile, and its patches.

They are read, and not run here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.workflows.programs import cross_environment

if TYPE_CHECKING:
    from pathlib import Path


def words_of_rules(tree: Path) -> set[str]:
    """The words of the file, without the slashes around names of folders."""
    return {word.strip("/") for word in re.split(r"[\s=;&|()'\"]+", _rules(tree))}


def _rules(tree: Path) -> str:
    rules = tree / "debian" / "rules"
    return rules.read_text("utf-8", "replace") if rules.is_file() else ""


def has_patched_configure_ac(tree: Path) -> bool:
    """Whether one of Debian's patches changes what Autoconf makes the configure script of."""
    patches = (path for path in sorted((tree / "debian" / "patches").rglob("*")) if path.is_file())
    return any(_CONFIGURE_AC.search(path.read_text("utf-8", "replace")) for path in patches)


_CONFIGURE_AC = re.compile(r"^\+\+\+ [^/\s]+/configure\.(?:ac|in)\b", re.MULTILINE)


def variables_of_rules(tree: Path) -> dict[str, str]:
    """What debian/rules exports to the package's build and tests on every machine: variable -> plain value.

    Values that make computes are left out, and so are variables of Debian's own tools, of compilers and of their flags.
    """
    found, conditions = {}, 0
    for line in _rules(tree).splitlines():
        if _CONDITION.match(line):
            conditions += 1
        elif _END.match(line):
            conditions -= 1
        elif (one := _EXPORT.fullmatch(line)) and not conditions and not _OF_BUILD.fullmatch(one["name"]):
            found[one["name"]] = one["value"]
    return found


def steps_of_rules(tree: Path) -> dict[str, str]:
    """The stages for which debian/rules has commands without Debian's own tools: stage -> goal of that makefile.

    A makefile without a configure script may build nothing without what they prepare, or without the goal that they
    name.
    """
    found: dict[str, list[str]] = {}
    goal = ""
    for line in _rules(tree).splitlines():
        if line.startswith("\t"):
            found.setdefault(goal, []).append(line)
        elif one := _STEP.match(line):
            goal = one[1]
        elif line.strip() and not _BESIDE.match(line):
            goal = ""
    plain = {goal for goal, lines in found.items() if goal and not any("dh_" in line for line in lines)}
    return {stage: goal for stage, goals in _STEPS.items() for goal in goals if goal in plain}


_BESIDE = re.compile(r"#|\s*(?:ifn?eq|ifn?def|else|endif)\b")
"""Lines that do not end a rule of a makefile."""
_STEPS = {
    stage: tuple(f"override_dh_auto_{stage}{part}" for part in ("-arch", ""))
    for stage in ("configure", "build", "test")
}
_STEP = re.compile(r"(override_dh_auto_(?:configure|build|test)(?:-arch)?)\s*:(?!=)")
_CONDITION = re.compile(r" *(?:ifn?eq|ifn?def|define)\b")
_END = re.compile(r" *(?:endif|endef)\b")
_EXPORT = re.compile(r"export\s+(?P<name>\w+)\s*[:?]?=\s*(?P<value>[^$#\\]*?)\s*(?:#.*)?")
_OF_BUILD = re.compile(
    rf"(?:DEB|DH|DPKG)_\w+|\w*FLAGS(?:_\w+)?|PATH|LD_LIBRARY_PATH|LD|{'|'.join(cross_environment.VARIABLES)}"
)
