"""Finds assumptions in a tree's makefiles about the machine that they run on. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.workflows.porting.document import Assumption

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NAME = re.compile(r"(^|/)(GNUm|m|M)akefile$|\.mk$")
_ASIDE = re.compile(r"^(tests|utils|src/unit|deps/jemalloc|deps/\w+/(tests?|examples?|fuzzing))/")
"""Folders whose makefiles do not build the server."""
_TESTED = re.compile(r"\buname(_[SMRO])?\b")


def is_makefile(file: str) -> bool:
    """Whether a file of the tree contributes to the server's build."""
    return _NAME.search(file) is not None and _ASIDE.match(file) is None


def assumptions(files: Mapping[str, str]) -> list[Assumption]:
    """Lines that query the name of the system or machine, or turn warnings into errors. `files`: name -> makefile."""
    return [one for file, text in sorted(files.items()) for one in _of_file(file, text)]


def machines_named(found: Sequence[Assumption]) -> list[str]:
    """Full or partial machine names that these lines compare with."""
    text = "\n".join(one.text for one in found if one.kind == "machine")
    compared = re.findall(r"findstring ([\w-]+)|filter ([\w% -]+),|uname_M\),([\w-]+)\)", text)
    return sorted({name.rstrip("%") for names in compared for name in " ".join(names).split()})


def _of_file(file: str, text: str) -> Iterator[Assumption]:
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("#")[0].strip()
        if re.search(r"-Werror\b", code):
            yield Assumption(kind="warnings are errors", file=file, line=number, text=code)
        if not _TESTED.search(code) or re.match(r"uname_\w\s*:?=", code):
            # Storing the name is not yet a decision that depends on it.
            continue
        kind = "Solaris" if "SunOS" in code else "machine" if re.search(r"uname_M|uname -m", code) else "system"
        yield Assumption(kind=kind, file=file, line=number, text=code)  # type: ignore[arg-type]
