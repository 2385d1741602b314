"""The target's canary makes every access encoding that a real program contains, except those exempt for a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.build import toolchain
from harness.build.workshop.build_plan import BuildPlan
from harness.core.processes import process
from tests.end_to_end.support import machines
from tools import encodings as census

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.target_model import Target

pytestmark = pytest.mark.end_to_end

CATALOG = machines.CATALOG
READABLE = [name for name in machines.REQUIRED if name in census.readable()]


def made(target: Target) -> set[str]:
    """The encodings that the target's canary program makes, as compiled here."""
    return census.made(target, machines.toolchain_of(target.name), machines.quiet_workbench().cache)


def test_the_accesses_of_every_required_target_can_be_read() -> None:
    assert READABLE == machines.REQUIRED


@pytest.mark.parametrize(
    "name",
    machines.sampled(*READABLE, "hppa", "mips", "powerpc", "powerpc64", "powerpc64le", "riscv64", "s390x"),
)
def test_a_canary_makes_every_access_of_the_libraries(name: str) -> None:
    target = CATALOG.targets[name]
    mine = made(target)
    assert sorted(mine) == census.stored()[name].made, "not current: run python -m tools.encodings"
    tools = machines.toolchain_of(name)
    for library, path in census.libraries(target, tools).items():
        found = census.counted(target, tools, path)
        assert found, library
        assert census.unproved(target, mine, found) == [], library


@pytest.mark.parametrize("name", ["armv5", *map(machines.beyond, ("armv7", "aarch64", "sparc64"))])
def test_a_canary_makes_every_access_of_a_server(name: str) -> None:
    target, bench = CATALOG.targets[name], machines.quiet_workbench()
    tools = CATALOG.toolchain_of(target)
    built = bench.builder.build(
        BuildPlan(tree=bench.open_server("redis-7.0.15"), target=target, tools=tools, optimisation="O2")
    )
    found = census.counted(target, tools, built.server_binary)
    assert sum(found.values()) > 10_000
    assert census.unproved(target, made(target), found) == []


@pytest.mark.parametrize(
    ("name", "instruction", "encoding"),
    [
        ("armv5", "ldrt r2, [r1]", "A32 ldrt r, [r], #"),
        ("armv7", "vld3.16 {d0[], d1[], d2[]}, [r1]", "T32 vld3.16 {3 d[]}, [r]"),
        ("aarch64", "ldtrh w2, [x1]", "ldtrh w, [x, #]"),
        ("sparc64", "lda [%o1] 0x82, %f2", "lda [ r + r ] #ASI_PNF, f"),
        machines.beyond("hppa", "ldcwx %r20(%r19),%r21", "ldcw r(r),r"),
        machines.beyond("powerpc", "lswx 9,0,10", "lswx r,r,r"),
        machines.beyond("riscv64", "amomin.w t0,t1,(a0)", "RVG amomin.w r,r,(r)"),
        machines.beyond("s390x", "cdsy %r2,%r4,0(%r1)", "cdsy r,r,#(r)"),
    ],
)
def test_an_encoding_that_no_canary_makes_is_reported(
    name: str, instruction: str, encoding: str, tmp_path: Path
) -> None:
    target = CATALOG.targets[name]
    tools = machines.toolchain_of(name)
    source, program = tmp_path / "other.c", tmp_path / "other.o"
    source.write_text(f'void other(void) {{ __asm__ volatile("{instruction}"); }}\n', "utf-8")
    flags = [*toolchain.compiler_flags(target, "O2"), *(["-mfpu=neon"] if name == "armv7" else [])]
    command = [toolchain.tool(tools, "gcc"), "-c", str(source), *flags, "-o", str(program)]
    process.run_successfully(command, problem="it does not compile", deadline_seconds=60)
    assert census.unproved(target, made(target), census.counted(target, tools, program)) == [encoding]
