"""Runs the probe on a board: a small C program that says what machine, kernel and C library that is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.build.helper_program import compiled
from harness.core.errors import InfrastructureError
from harness.record.run_record import BoardFacts

if TYPE_CHECKING:
    from harness.core.cache import Cache
    from harness.core.target_model import Target, Toolchain
    from harness.run.boards.reached_machine import ReachedMachine

SOURCE = Path(__file__).with_name("probe.c")
SECONDS = 60.0
_NAME = "probe"
_NUMBERS = ("width_bits", "time_bits", "page_size_bytes")


def compile_probe(cache: Cache, target: Target, tools: Toolchain) -> Path:
    """The probe for a target's Linux. Raises InfrastructureError when it does not compile."""
    return compiled(
        cache,
        tools,
        title=f"the probe for {target.name}",
        kind="probes",
        owner=target.name,
        file=_NAME,
        flags=[*target.compiler_flags, "-O1", "-Wall", "-Wextra", "-Werror", "-std=gnu11"],
        sources=[SOURCE],
    )


def probe(host: ReachedMachine, program: Path) -> BoardFacts:
    """What a program that was compiled here tells there. Raises InfrastructureError if it does not run to its end."""
    shell, place = host.machine().shell, f"{host.folder}/{_NAME}"
    shell.put(program, place)
    shell.run("chmod", "755", place)
    return _told(host, place)


def probe_with_its_compiler(host: ReachedMachine) -> BoardFacts:
    """The same of a program that the machine's own `cc` compiled. Raises InfrastructureError also if that cannot."""
    shell, place = host.machine().shell, f"{host.folder}/{_NAME}"
    shell.put(SOURCE, f"{place}.c")
    made = shell.run("cc", "-o", place, f"{place}.c", quiet=False, deadline_seconds=SECONDS)
    if made.code != 0:
        raise InfrastructureError(
            "no compiler there compiles the probe",
            where=shell.shown,
            because=made.output.decode("utf-8", "replace").strip()[-300:],
        )
    return _told(host, place)


def _told(host: ReachedMachine, place: str) -> BoardFacts:
    ran = host.shell.run(*host.image.board.under, place, quiet=False, deadline_seconds=SECONDS)
    text = ran.output.decode("utf-8", "replace")
    if ran.code != 0:
        raise InfrastructureError(
            "the probe does not run on the board", where=host.shell.shown, because=text.strip()[-300:]
        )
    return read_facts(text)


def read_facts(text: str) -> BoardFacts:
    """The facts in a probe's output. Raises InfrastructureError if it is not whole."""
    lines = (line.partition(" ") for line in text.splitlines())
    told = {name.replace("-", "_"): value.strip() for name, _, value in lines}
    known = {name: value for name, value in told.items() if name in BoardFacts.__struct_fields__}
    try:
        return BoardFacts(**{name: int(value) if name in _NUMBERS else value for name, value in known.items()})  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InfrastructureError("the board's probe did not say what the machine is", because=text[:300]) from error


def contradictions(facts: BoardFacts, target: Target) -> list[str]:
    """How a board's machine differs from a target, in phrases."""
    own = {"endianness": facts.endianness, "width_bits": facts.width_bits, "page_size_bytes": facts.page_size_bytes}
    return [
        f"its {name} is {value}, and that of {target.name} is {getattr(target, name)}"
        for name, value in own.items()
        if value != getattr(target, name)
    ]
