"""`python -m tools.lines_left RELEASE FILE...`: why lines of a release that tests could run do not run, by class.

The files are what `python -m tools.line_coverage --lines` wrote; a line ran where one of them says so. It prints the
table of docs/COVERAGE.md. tools/lines_left.toml has the classes. A function that nothing in src mentions has its own
class, and what fits no class is counted as such.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.core import json_codec
from harness.core.model import Record
from harness.core.strict_toml import ROOT, read_toml
from harness.report.markdown_table import table
from harness.workflows.workbench import Workbench
from tools.line_coverage import BOTH, OURS, THEIRS, Lines, either

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

REASONS = ROOT / "tools" / "lines_left.toml"
UNUSED, UNREACHED = "unused", "unreached"
IN_ORDER = re.compile(
    r"(rdb|aof|listpack|ziplist|intset|quicklist|sds|rax|t_\w+|bitops|hyperloglog|cluster|replication|evict|expire|object"
    r"|networking)\.c"
)
"""The files that put bytes in order."""
_BEGINNING = re.compile(r"[A-Za-z_][\w\s*]*?(\w+)\s*\(")
_NO_FUNCTION = ("typedef", "struct", "#", "else", "return")


class Reason(Record, frozen=True):
    """A class of lines."""

    name: str
    why: str
    functions: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def names(self, file: str, line: int) -> bool:
        """Whether it names a line itself."""
        for one in self.lines:
            name, _, numbers = one.partition(":")
            first, _, last = numbers.partition("-")
            if name == file and int(first) <= line <= int(last or first):
                return True
        return False

    def fits(self, file: str, line: int, function: str, branch: str) -> bool:
        """Whether a run of lines belongs to it. `line`: its first; `branch`: its text, empty for a whole function."""
        of_function = any(fnmatch.fnmatchcase(f"{file}:{function}", glob) for glob in self.functions)
        return of_function or self.names(file, line) or any(re.search(word, branch) for word in self.words if branch)


class Reasons(Record, frozen=True):
    """tools/lines_left.toml."""

    reasons: list[Reason]


def functions_of(text: Sequence[str]) -> dict[int, str]:
    """Line -> its function, by the servers' style: a name at the margin, and a brace that ends it there."""
    found: dict[int, str] = {}
    name, first = "", 0
    for number, line in enumerate(text, start=1):
        begins = _BEGINNING.match(line)
        if begins and not line.rstrip().endswith(";") and not line.startswith(_NO_FUNCTION):
            name, first = begins[1], number
        if line.startswith("}") and name:
            found |= dict.fromkeys(range(first, number + 1), name)
            name = ""
    return found


def runs_of(lines: Mapping[int, bool], functions: Mapping[int, str]) -> Iterator[list[int]]:
    """The lines that did not run, in runs of lines with code that follow each other in one function."""
    ordered = sorted(lines)
    for (ran, _), some in itertools.groupby(ordered, key=lambda line: (lines[line], functions.get(line, ""))):
        if not ran:
            yield list(some)


def runs_by_class(
    file: str, text: Sequence[str], lines: Mapping[int, bool], reasons: Sequence[Reason], unused: frozenset[str]
) -> Iterator[tuple[str, str, list[int]]]:
    """The class and the function of each run of a file's lines that did not run."""
    functions = functions_of(text)
    entered = {functions.get(line) for line, ran in lines.items() if ran}
    for run in runs_of(lines, functions):
        name = functions.get(run[0], "")
        # What a function that was never entered contains says nothing about why.
        branch = "\n".join(text[run[0] - 1 : run[-1]]) if name in entered else ""
        fits = next((one.name for one in reasons if one.fits(file, run[0], name, branch)), UNREACHED)
        yield UNUSED if name in unused else fits, name, run


def classified(
    file: str, text: Sequence[str], lines: Mapping[int, bool], reasons: Sequence[Reason], unused: frozenset[str]
) -> Counter[str]:
    """Class -> how many lines of a file it keeps from running."""
    found: Counter[str] = Counter()
    for fits, _, run in runs_by_class(file, text, lines, reasons, unused):
        found[fits] += len(run)
    return found


def unused_in(texts: Mapping[str, str]) -> frozenset[str]:
    """Functions that the files name where they are defined and declared alone, or for their own tests."""
    code = [re.sub(r"#ifdef REDIS_TEST.*?(?=#endif|\Z)", "", text, flags=re.DOTALL) for text in texts.values()]
    code = [re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL) for text in code]
    uses = Counter(word for text in code for word in re.findall(r"\b[A-Za-z_]\w+\b", text))
    # A definition or a declaration begins at the margin.
    margin = re.compile(r"^[A-Za-z_][\w\s*]*?\b(\w+)\s*\(", re.MULTILINE)
    there = Counter(name for text in code for name in margin.findall(text))
    # module.c's table names its functions without the beginning.
    return frozenset(name for name, count in there.items() if uses[name] == count and not name.startswith("RM_"))


def read(paths: Sequence[Path]) -> dict[str, Lines]:
    """Which lines each kind of tests ran, in any of the files."""
    merged: dict[str, Lines] = {OURS: {}, THEIRS: {}}
    for path in paths:
        for name, lines in json_codec.decode(path.read_bytes(), dict[str, Lines]).items():
            if name != BOTH:
                merged[name] = either(lines, merged[name])
    return merged | {BOTH: either(*merged.values())}


def page(found: Mapping[str, Lines], left: Mapping[str, Counter[str]], reasons: Sequence[Reason]) -> str:
    """The tables: the classes, and the lines of each file by who runs them and by class."""
    names = [*(one.name for one in reasons), UNUSED, UNREACHED]

    def row(title: str, files: Sequence[str]) -> list[str]:
        shares = [[ran for file in files for ran in lines.get(file, {}).values()] for lines in found.values()]
        counts = [str(sum(left[file][name] for file in files) or "") for name in names]
        return [
            title,
            f"{len(shares[0]):,}",
            *(f"{sum(each) / len(each):.1%}" if each else "" for each in shares),
            *counts,
        ]

    files = sorted(found[BOTH], key=lambda file: -len(found[BOTH][file]))
    files = [file for file in files if found[BOTH][file]]
    ordering = [file for file in files if IN_ORDER.fullmatch(file)]
    rows = [row("**all**", files), row("**files that put bytes in order**", ordering)]
    rows += [row(f"`{file}`", [file]) for file in [*ordering, *(file for file in files if file not in ordering)]]
    return "\n".join(table(["file", "lines", *found, *names], rows, numbers_from=1))


@click.command()
@click.argument("server")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--text", "shown", help="Print the text of the lines of this class instead: `unreached`.")
@click.option("--file", "only", default="*.c", show_default=True, help="With --text, of these files alone: a glob.")
def main(server: str, files: tuple[Path, ...], shown: str | None, only: str) -> None:
    """Print the lines that no test runs, by file and by class."""
    source = Workbench.default().open_server(server).content / "src"
    found = read(files)
    reasons = read_toml(REASONS, Reasons).reasons
    texts = {path.name: path.read_text("utf-8", "replace") for path in sorted(source.glob("*.[ch]"))}
    unused = unused_in(texts)
    if shown is not None:
        for file in sorted(fnmatch.filter(found[BOTH].keys() & texts.keys(), only)):
            text = texts[file].splitlines()
            for fits, name, run in runs_by_class(file, text, found[BOTH][file], reasons, unused):
                if fits == shown:
                    click.echo(f"{file}:{run[0]}: {name}")
                    click.echo("\n".join(f"    {line}  {text[line - 1]}" for line in run))
        return
    left = {
        file: classified(file, texts[file].splitlines(), lines, reasons, unused)
        for file, lines in found[BOTH].items()
        if file in texts
    }
    found[BOTH] = {file: found[BOTH][file] for file in left}
    click.echo(page(found, left, reasons))


if __name__ == "__main__":
    main()
