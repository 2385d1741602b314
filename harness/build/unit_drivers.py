"""Builds units: Plumbline's drivers, which call a server's functions and are linked with the server's own objects.

The server's makefile compiles the drivers, so that they share its flags, headers and allocator; no stubs are involved.
A unit that a server lacks is omitted: the table says so of a release, and the linker of any tree. A driver that does
not compile although the server has its functions is a separate case. Neither costs any other unit.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis.compiler_output import first_error, linking
from harness.build import toolchain
from harness.build.server_build import build_key
from harness.build.workshop import build_code, kept_objects
from harness.build.workshop.make_command import link_words
from harness.core import json_codec
from harness.core.cache import disk_errors
from harness.core.digests import key_of, sha256_of
from harness.core.model import Program, Record, is_lto
from harness.core.strict_toml import ROOT, read_toml
from harness.plan.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.build.server_build import Builder
    from harness.build.workshop.build_directory import BuildDirectory
    from harness.build.workshop.build_plan import BuildPlan
    from harness.core.model import SourceTree
    from harness.core.processes import process

RECIPE = "2"


class Unit(Record, frozen=True):
    """The functions that one run of the program calls; an entry of units.toml."""

    name: str
    driver: str
    """File in drivers/; its function is `unit_NAME`."""
    file: str
    """Its path below the server's src."""
    redis: list[str]
    """Releases that have it: [first], [first, first without], or none."""
    valkey: list[str]
    valkey_file: str = ""
    """Its path in Valkey's releases; empty if it is the same."""

    def file_in(self, tree: SourceTree) -> str:
        """Its path below the src of a tree."""
        return self.valkey_file if self.valkey_file and tree.family == "valkey" else self.file


class UnitTable(Record, frozen=True):
    """units.toml of the suite whose program is `units`."""

    units: list[Unit]


class Missing(Record, frozen=True):
    """The units that the program for one server and target does not contain; stored beside it."""

    absent: dict[str, str]
    """Unit -> the functions of the server that its driver calls and that the linker does not find."""
    broken: dict[str, str]
    """Unit -> the first error of its driver."""


MISSING = "missing.json"


class Units(Record, frozen=True):
    """The program for one server and target, and the units missing from it."""

    program: Path | None
    """None when nothing could be linked."""
    absent: dict[str, str]
    """Unit -> why this server does not have it."""
    broken: dict[str, str]
    """Unit -> the first error of its driver: a fault of the suite, or of a tree under development."""
    kind: Program = "units"
    """Their owner: Plumbline's drivers, or the server's own self-tests (harness.run.selftests)."""
    names: tuple[str, ...] = ()
    """Names of the callable units, if the server's source defines them; Plumbline's own are in `table`."""
    arguments: tuple[str, ...] = ("{unit}",)
    """The arguments that make the program call a unit."""
    preload: Path | None = None
    """A shared object preloaded into the program, as into servers (harness.core.model.Build)."""

    def call(self, unit: str) -> list[str]:
        """The arguments that make the program call this unit."""
        return [word.replace("{unit}", unit) for word in self.arguments]


@cache
def folder() -> Path:
    """The folder of the suite whose program is `units`: units.toml and the drivers' sources."""
    return Catalog().suite_of_program("units").path


def drivers() -> Path:
    """The drivers' folder, relative to the checkout and to a work folder, so frames in both have the same path."""
    return (folder() / "drivers").relative_to(ROOT)


def table() -> list[Unit]:
    """All units."""
    return read_toml(folder() / "units.toml", UnitTable).units


def absence(unit: Unit, tree: SourceTree) -> str:
    """Why a server does not have a unit; empty when it should have it.

    The table names releases, so that a release without a unit that it should have is noticed. A development tree is
    asked for its file.
    """
    releases = unit.valkey if tree.family == "valkey" else unit.redis
    bounds = [tuple(int(part) for part in release.split(".")) for release in releases]
    version = ".".join(map(str, tree.version))
    if not bounds:
        return f"{tree.family} has no {unit.name}"
    if tree.version < bounds[0]:
        return f"{tree.family} has it only from {releases[0]} on, and this is {version}"
    if len(bounds) > 1 and tree.version >= bounds[1]:
        return f"{tree.family} has it only before {releases[1]}, and this is {version}"
    if tree.development and not (tree.content / "src" / unit.file_in(tree)).is_file():
        return f"{tree.name} has no src/{unit.file_in(tree)}"
    return ""


def build_units(builder: Builder, plan: BuildPlan) -> Units:
    """The program with the units, from the cache if possible."""
    sources = [folder() / "units.toml", *sorted((folder() / "drivers").iterdir())]
    parts = [RECIPE, build_key(plan), *(sha256_of(path) for path in sources)]
    key = f"{plan.stem}-{key_of(parts)}"
    absent = {unit.name: why for unit in table() if (why := absence(unit, plan.tree))}
    wanted = [unit for unit in table() if unit.name not in absent]

    def link(shop: BuildDirectory, made: process.Result) -> None:
        builder.cache.folder("units", key, lambda into: _compile(shop, made.text, wanted, into))

    built = builder.cache.entry("units", key)
    if built is None:
        # If the server must be compiled anyway, its objects are already there.
        builder.build(plan, then=link)
        built = builder.cache.entry("units", key)
    if built is None:
        what = f"units of {plan.title}"
        with builder.workshop(plan, what=what, kind="units") as shop:
            link(shop, shop.make_server())
        built = builder.cache.path("units", key)
    program = built / "units"
    missing = json_codec.decode((built / MISSING).read_bytes(), Missing)
    return Units(program=program if program.is_file() else None, absent=absent | missing.absent, broken=missing.broken)


def _compile(shop: BuildDirectory, made: str, wanted: Sequence[Unit], into: Path) -> None:
    """Put the program and the reasons for missing units into a folder. `made`: the output of the server's makefile."""
    work = shop.work / drivers()
    recipe = key_of([shop.recipe, _compiler(shop).read_text("utf-8")])
    with disk_errors(work):
        kept_objects.fill(work, folder() / "drivers", shop.work, recipe)
    objects, broken = _drivers(shop, wanted)
    program = _Program(shop, made, objects)
    problem, absent = program.link([unit for unit in wanted if unit.name not in broken])
    if shop.keeps:
        kept_objects.keep(work, shop.tree / "src", shop.work, recipe)
    broken |= problem
    with disk_errors(into):
        if program.path.is_file():
            shutil.copy2(program.path, into)
            like = f"{shop.server.name}-{shop.target.name}-"
            # The units' own objects also contain the drivers' code.
            before = build_code.newest(into.parent, like) or build_code.newest(into.parent.with_name("builds"), like)
            build_code.write(into, shop.work, link_words(made, shop.binary.name), before)
        (into / MISSING).write_bytes(json_codec.pretty(Missing(absent, broken)))


def _drivers(shop: BuildDirectory, wanted: Sequence[Unit]) -> tuple[dict[str, Path], dict[str, str]]:
    """The object of each driver that compiles, and the reason for each unit without one."""
    broken = {
        unit.name: f"src/{file} is not there; {drivers().with_name('units.toml')} says that this release has it"
        for unit in wanted
        if not (shop.tree / "src" / (file := unit.file_in(shop.server))).is_file()
    }
    files = sorted({unit.driver for unit in wanted if unit.name not in broken})
    objects, errors = _objects(shop, files)
    broken |= {unit.name: errors[unit.driver] for unit in wanted if unit.driver in errors}
    return objects, broken


def _objects(shop: BuildDirectory, files: Sequence[str]) -> tuple[dict[str, Path], dict[str, str]]:
    """Compile drivers as the server's makefile compiles its own files: the objects, and the reason for each failure."""
    compiler = _compiler(shop)
    goals = {name: str(Path("..", "..", drivers(), name).with_suffix(".o")) for name in files}
    shop.make(list(goals.values()), compiler=compiler, go_on=True)
    objects, errors = {}, {}
    for name, goal in goals.items():
        # Before 6.0 the makefile's rule always leaves the object in src.
        places = [shop.tree / "src" / goal, shop.tree / "src" / Path(goal).name]
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            errors[name] = in_a_line(shop.make([goal], compiler=compiler))
        else:
            objects[name] = found
    return objects, errors


def _compiler(shop: BuildDirectory) -> Path:
    """The compiler of drivers."""
    family = ["-DPLUMBLINE_VALKEY"] if shop.server.family == "valkey" else []
    return shop.wrapper("gcc", ["-iquote", str(shop.tree / "src"), *family], suffix="-drivers")


def _table_source(units: Sequence[Unit]) -> str:
    declarations = [f"void unit_{unit.name}(void);" for unit in units]
    rows = [f'    {{"{unit.name}", unit_{unit.name}}},' for unit in units]
    head = ["/* Generated by harness/build/unit_drivers.py. */", "#include <stddef.h>", *declarations]
    body = ["const struct unit {", "    const char *name;", "    void (*run)(void);", "} units[] = {", *rows]
    return "\n".join([*head, *body, "    {NULL, NULL},", "};", ""])


class _Program:
    """The program of the drivers, linked with the command of the server's own link.

    The linker takes the required server objects from an archive. A driver that includes one of the server's source
    files defines all its symbols, so the linker does not take the server's object of that file.
    """

    def __init__(self, shop: BuildDirectory, made: str, objects: dict[str, Path]) -> None:
        """`made`: the output of the server's makefile. `objects`: those of the drivers."""
        self._shop = shop
        self._objects = objects
        self._words = link_words(made, shop.binary.name)
        self.path = shop.work / drivers() / "units"
        self._archive = self.path.with_name("server.a")

    def link(self, units: Sequence[Unit]) -> tuple[dict[str, str], dict[str, str]]:
        """Link the drivers of the units: the reasons for broken units, and for absent ones.

        If together they do not link, those that call what is missing are linked alone, and the rest together. If the
        rest does not link either, each driver is linked alone.
        """
        if not self._words:
            problem = f"the makefile printed no command that links {self._shop.binary.name}"
            return dict.fromkeys((unit.name for unit in units), problem), {}
        self._write_archive()
        left, failed = list(units), self._link(units)
        broken: dict[str, str] = {}
        absent: dict[str, str] = {}
        # Each link calls the server's makefile, which takes longer than the linker.
        for suspects in (self._named, self._all):
            if failed is None or not left:
                break
            for driver in suspects(left, failed):
                its = [unit for unit in left if unit.driver == driver]
                alone = self._link(its)
                if alone is not None:
                    lacking = self._lacking(driver, alone)
                    why = f"{self._shop.server.name} has no {', '.join(lacking)}" if lacking else _why(alone)
                    (absent if lacking else broken).update(dict.fromkeys((unit.name for unit in its), why))
            left = [unit for unit in left if unit.name not in broken and unit.name not in absent]
            failed = self._link(left)
        if failed is not None:
            broken |= dict.fromkeys((unit.name for unit in left), _why(failed))
        return broken, absent

    def _named(self, units: Sequence[Unit], failed: process.Result) -> list[str]:
        """The drivers that call a function which the linker did not find."""
        undefined = set(linking(failed.text).undefined)
        return [driver for driver in self._all(units, failed) if undefined & self._called(driver)]

    def _all(self, units: Sequence[Unit], _: process.Result) -> list[str]:
        return sorted({unit.driver for unit in units})

    def _called(self, driver: str) -> set[str]:
        """What a driver refers to and does not define."""
        listed = self._shop.run([toolchain.tool(self._shop.tools, "gcc-nm"), "-u", self._objects[driver]])
        return set(listed.text.split())

    def _lacking(self, driver: str, failed: process.Result) -> list[str]:
        """The functions that a driver calls and the server lacks; empty if it fails to link for another reason.

        A function that only the server's own objects miss says nothing of the driver: a library is missing then.
        """
        named = linking(failed.text)
        return [] if named.twice or not self._called(driver).issuperset(named.undefined) else named.undefined

    def _write_archive(self) -> None:
        shop, source = self._shop, self._shop.tree / "src"
        own = [source / word for word in self._words if word.endswith(".o")]
        linked_whole = is_lto(shop.plan.optimisation)
        for path in own:
            if path.name in {"server.o", "redis.o"}:
                if linked_whole:
                    # Objects for link-time optimisation have no symbols that could be renamed.
                    path.unlink()
                    shop.make([path.name], compiler=shop.wrapper("gcc", ["-fno-lto"], suffix="-plain"))
                shop.run([toolchain.tool(shop.tools, "objcopy"), "--redefine-sym", "main=server_main", path])
        shop.run([toolchain.tool(shop.tools, "gcc-ar" if linked_whole else "ar"), "qc", self._archive, *own])

    def _link(self, units: Sequence[Unit]) -> process.Result | None:
        """Link the program of exactly these units: the linker's result if it fails, and then there is no program."""
        shop = self._shop
        with disk_errors(self.path.parent):
            self.path.unlink(missing_ok=True)
            self.path.with_name("table.c").write_text(_table_source(units), "utf-8")
        own = sorted({unit.driver for unit in units})
        common, _ = _objects(shop, ["table.c", "main.c"])
        compiler, *others = [word for word in self._words if not word.endswith(".o")]
        # Libraries may need symbols that no driver uses: Valkey 9's Lua is linked whole.
        group = ["-Wl,--start-group", str(self._archive), *others, "-Wl,--end-group"]
        objects = [*(self._objects[name] for name in own), *common.values()]
        result = shop.run([compiler, "-o", self.path, *objects, *group], folder=shop.tree / "src")
        if result.code == 0 and self.path.is_file():
            return None
        self.path.unlink(missing_ok=True)
        return result


def _why(failed: process.Result) -> str:
    return in_a_line(failed) or "the linker wrote no program"


def in_a_line(result: process.Result) -> str:
    """The first error of a compiler or linker, shortened to one line."""
    return first_error(result.text).partition("\n")[0].strip()
