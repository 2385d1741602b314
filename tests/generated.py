"""What documents say that data and code say too: written by `python -m tests.generated`, compared by test_generated.py.

README.md's required targets; docs/support.md's tables of targets and servers; docs/cli.md, from the command line;
docs/toml.md, from the nouns that TOML files are read into.
"""

from __future__ import annotations

import inspect
from enum import Enum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import click
import msgspec

from harness.build.kernel import LinuxSource
from harness.build.qemu_user import Qemu
from harness.build.sources.tree_features import Landmarks
from harness.build.unit_drivers import UnitTable
from harness.cli.group import plumb
from harness.core.errors import ExitCode
from harness.core.model import KernelSpec, Policy, Server, Suite, Target, Toolchain
from harness.core.strict_toml import ROOT
from harness.judge.known_findings import KnownList
from harness.plan.catalog import Catalog
from harness.protocol import reply_comparison
from harness.protocol.allowed_refusals import RefusalList
from harness.report.markdown_table import table
from harness.report.schema import field_docstrings
from harness.run.canary import AccessTable
from harness.workflows.measure import tier_agreement
from harness.workflows.mutation_testing.mutations import Mutation
from harness.workflows.suite_selection import IgnoredPathTable
from suites.fuzz.generate import Grammar
from suites.visible import table as visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOTE = "<!-- Written by `python -m tests.generated` from {source}: change that. -->"
TOML_FILES: list[tuple[str, type[msgspec.Struct]]] = [
    ("targets/NAME.toml", Target),
    ("toolchains/NAME.toml", Toolchain),
    ("harness/plan/servers/NAME.toml", Server),
    ("suites/NAME/suite.toml", Suite),
    ("harness/plan/policies/FAMILY.toml, each of its [[policies]] (beside them, once: `source`)", Policy),
    ("ci/known.toml", KnownList),
    ("harness/build/sources/landmarks.toml", Landmarks),
    ("harness/workflows/mutation_testing/bugs/NAME.toml", Mutation),
    ("harness/workflows/unseen.toml", IgnoredPathTable),
    ("harness/isa/accesses/ISA.toml", AccessTable),
    ("harness/workflows/measure/tier_differences.toml", tier_agreement.TierDifferenceTable),
    ("harness/protocol/differences.toml", reply_comparison.AllowedDifferenceTable),
    ("suites/fuzz/grammar.toml", Grammar),
    ("harness/protocol/refusals.toml", RefusalList),
    ("suites/units/units.toml", UnitTable),
    ("suites/visible/differences.toml", visible.RequestTable),
    ("suites/visible/requests.toml", visible.Asked),
    ("toolchains/kernels/NAME.toml", KernelSpec),
    ("toolchains/kernels/linux/linux.toml", LinuxSource),
    ("toolchains/qemu/qemu.toml", Qemu),
]
TOLD_BY_THE_PLACE = {"name", "path"}
"""Fields that a file's name tells; where they are keys all the same, the file lists several of a kind."""
NAMED = (Policy,)


def required_rows() -> list[str]:
    """README.md's targets: those that every check runs on unless it is told otherwise."""
    required = [one for one in Catalog().targets.values() if "required" in one.groups]
    rows = [(f"`{one.name}`", one.title, one.alignment) for one in required]
    return table(["target", "machine", "a misaligned access"], rows)


def target_rows() -> list[str]:
    """docs/support.md's targets."""
    every = Catalog().targets.values()
    ordered = sorted(every, key=lambda one: ("required" not in one.groups, "kernel" in one.groups, one.name))
    rows = [(f"`{one.name}`", one.title, ", ".join(one.groups), one.alignment) for one in ordered]
    return table(["target", "machine", "groups", "a misaligned access"], rows)


def server_rows() -> list[str]:
    """docs/support.md's servers."""
    rows = [(f"`{name}`", server.note) for name, server in Catalog().servers.items()]
    return table(["server", "what it is for"], rows)


def command_line() -> str:
    """docs/cli.md."""
    lines = ["# Command line", "", NOTE.format(source="harness/cli"), ""]
    lines += ["What it means: [reference.md](reference.md). Exit codes of all commands:", ""]
    lines += table(["code", "name"], [(code.value, code.name) for code in ExitCode])
    context = click.Context(plumb, info_name="plumb", **plumb.context_settings)
    for name in sorted(plumb.commands):
        command = plumb.commands[name]
        inner = click.Context(command, info_name=name, parent=context)
        usage = command.get_usage(inner).removeprefix("Usage: ")
        lines += ["", f"## plumb {name}", "", f"`{usage}`", "", inspect.cleandoc(command.help or ""), ""]
        records = [found for one in command.get_params(inner) if (found := one.get_help_record(inner))]
        lines += [f"- `{_machine_independent(declared)}`: {_machine_independent(text)}" for declared, text in records]
    return "\n".join([*lines, ""])


def _machine_independent(text: str) -> str:
    return " ".join(text.split())


def toml_keys() -> str:
    """docs/toml.md."""
    lines = ["# Keys of the TOML files", "", NOTE.format(source="the nouns' source"), ""]
    lines += [
        "Every file is complete: nothing is inherited. An unknown key is an error that names the nearest known one."
    ]
    for place, kind in TOML_FILES:
        about = inspect.getdoc(kind) or ""
        # Some say no more than which file it is.
        lines += ["", f"## {place}", "", *([] if ".toml" in about else [about, ""])]
        lines += [f"- {line}" for line in _keys(kind, "", named=kind in NAMED)]
    return "\n".join([*lines, ""])


def _keys(kind: type[msgspec.Struct], prefix: str, *, named: bool = True) -> Iterator[str]:
    told = field_docstrings(kind)
    for field in msgspec.structs.fields(kind):
        if field.name in TOLD_BY_THE_PLACE and not named:
            continue
        inner, several = _inner(field.type)
        words = told.get(field.name, "")
        default = "" if field.required else f"; default {_default(field)}"
        shape = "`[[{}]]`" if several else "`[{}]`" if inner else "`{}`"
        told_type = "" if inner else f" ({_type(field.type)}{default})"
        line = shape.format(prefix + field.name) + told_type + (f": {words}" if words else "")
        yield line
        if inner:
            yield from _keys(inner, f"{prefix}{field.name}.")


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return f"`{value}`" if value else "none"


def _inner(kind: Any) -> tuple[type[msgspec.Struct] | None, bool]:
    """The noun that a table holds, and whether there are several."""
    for one in (kind, *getattr(kind, "__args__", ())):
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            return one, one is not kind
    return None, False


def _type(kind: Any) -> str:
    """A type in the words of a TOML file."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{one}`" if one != "" else "empty" for one in arguments)
    if origin in {Union, UnionType}:
        return ", ".join(_type(one) for one in arguments if one is not NoneType)
    if origin in {list, tuple}:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"table of {_type(arguments[0])} → {_type(arguments[1])}"
    if issubclass(kind, Enum):
        return ", ".join(f"`{one.value}`" for one in kind)
    plain: dict[Any, str] = {str: "text", int: "number", float: "number", bool: "true or false", Any: "anything"}
    return plain.get(kind) or str(kind.__name__)


def with_tables(path: Path, tables: dict[str, Callable[[], list[str]]]) -> str:
    """A page with its tables written anew, between their marks."""
    text = path.read_text("utf-8")
    for mark, rows in tables.items():
        start, end = f"<!-- {mark}: written by `python -m tests.generated` -->", f"<!-- end of {mark} -->"
        before, _, rest = text.partition(start)
        _, found, after = rest.partition(end)
        assert found, f"{path.name} has no marks of {mark}"
        table = "\n".join(rows())
        # MyST needs the blank lines to know a table behind a comment.
        text = f"{before}{start}\n\n{table}\n\n{end}{after}"
    return text


README = ROOT / "README.md"
SUPPORT = ROOT / "docs" / "support.md"
DOCUMENTS: dict[Path, Callable[[], str]] = {
    README: lambda: with_tables(README, {"required targets": required_rows}),
    SUPPORT: lambda: with_tables(SUPPORT, {"targets": target_rows, "servers": server_rows}),
    ROOT / "docs" / "cli.md": command_line,
    ROOT / "docs" / "toml.md": toml_keys,
}


def main() -> None:
    """Write them."""
    for path, made in DOCUMENTS.items():
        path.write_text(made(), "utf-8")


if __name__ == "__main__":
    main()
