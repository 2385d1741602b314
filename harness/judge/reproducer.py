"""Reproducers: all that `plumb replay` needs to show a finding again, written beside the evidence, and read again."""

from __future__ import annotations

import base64
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from harness.core import json_codec
from harness.core.digests import key_of
from harness.core.errors import UsageError
from harness.core.finding import Difference, Reproduction  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.core.model import Allocator, FileName, NameOrNone, Program, Record
from harness.isa import rules
from harness.record.recording_proxy import Chunk, load
from harness.record.run_folder import AUDIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.judge.sightings import Sighting
    from harness.record.run_folder import RunRecord


class Reproducer(Record, frozen=True):
    """RUN/reproducers/ID.json: what `plumb replay` needs to show a finding again."""

    finding: str
    kind: str
    function: str
    server: str
    target: str
    policy: str
    optimisation: Annotated[str, msgspec.Meta(pattern=r"^O[0-3s]\Z")]
    """What would be more on a compiler's command line is no stranger's to choose."""
    emulator: str
    chunks: list[Chunk]
    detector: str = "signal"
    """What saw it, and must see it again."""
    unit: NameOrNone = ""
    """The unit to run; empty for a server and its requests."""
    program: Program = "units"
    """Whose unit it is."""
    wrong_line: str = ""
    """What the unit must write again."""
    allocator: Allocator = "libc"
    files: dict[FileName, str] = msgspec.field(default_factory=dict)
    """Name -> content in base 64: what lies in the guest's folder when it starts."""
    options: tuple[str, ...] = ()
    """What it is started with beyond the usual."""
    difference: Difference | None = None
    detail: str = ""
    """How it ended, or what the test said, where no record tells what must come again."""
    starting: bool = False
    """It ended before it was ready."""
    command: str = ""
    """What the client had asked for, as the report has it."""
    file: str = ""
    """Where it is, for an assertion whose function nobody knows."""
    again: Reproduction | None = None
    """Instead of `chunks`: what a server is asked, and which bytes must come of it."""


SEAL = re.compile(rb'\{\s*"seal":\s*"([0-9a-f]{64})",\s*')
"""How a document begins that a check made, harness.judge.provenance says on which machine; somebody may have laid it
out."""


def unsealed(document: bytes) -> bytes:
    """The same without its seal, if it has one."""
    return SEAL.sub(b"{", document, count=1) if SEAL.match(document) else document


def best_of(group: Sequence[Sighting]) -> Sighting:
    """Of one finding's sightings the one that a reproducer is best made of."""
    return min(group, key=_rank)


def _rank(sighting: Sighting) -> tuple[bool, bool, int]:
    """The shortest transcript makes the best reproducer, a signal a better one than a report; none at all is last."""
    path = sighting.transcript
    if sighting.again is not None:
        return False, False, 0
    quiet = sighting.detector != "signal"
    return (False, quiet, path.stat().st_size) if path is not None and path.is_file() else (True, quiet, 0)


def _policy_of(run: RunRecord, one: Sighting) -> str:
    """Under which policy it was seen: a run's own, or that of the audit that followed, whatever saw it there."""
    in_audit = AUDIT in Path(one.evidence).parts[2:3]
    if in_audit and not rules.is_audit(run.policy):
        return rules.audit_name(run.policy)
    return run.policy


def _file_name(identity: str) -> str:
    """An identity as a file's name: C++ functions have slashes in theirs, parametrised tests can be very long."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", identity)
    return plain if plain == identity and len(plain) <= 120 else f"{plain[:100]}-{key_of([identity])[:8]}"


def write_reproducer(folder: Path, run: RunRecord, best: Sighting) -> str:
    """RUN/reproducers/ID.json of a sighting; the command that shows it again."""
    chunks = load(best.transcript) if best.transcript and best.transcript.is_file() else []
    started = best.started_with
    reproducer = Reproducer(
        finding=best.identity,
        kind=best.kind,
        function=best.frames[0].function if best.frames else "",
        server=run.server,
        target=best.again.target if best.again else best.target,
        policy=_policy_of(run, best),
        optimisation=run.optimisation,
        emulator=run.emulator,
        chunks=chunks,
        detector=best.detector,
        unit=best.unit,
        program=best.program,
        wrong_line=best.wrong_line,
        allocator=run.allocator,
        files=_files_in(started.inputs) if started else {},
        options=started.options if started else (),
        difference=best.difference,
        again=best.again,
        detail=best.detail or best.said,
        starting=best.starting,
        command=best.command,
        file=best.frames[0].file if best.frames else "",
    )
    path = folder / "reproducers" / f"{_file_name(best.identity)}.json"
    path.parent.mkdir(exist_ok=True)
    document = json_codec.encode(reproducer)
    # What is there already may be sealed, and stays so.
    if not path.is_file() or unsealed(path.read_bytes()) != document:
        path.write_bytes(document)
    return f"plumb replay {shlex.quote(str(path))}"


def files_of(reproducer: Reproducer) -> dict[str, bytes]:
    """Name -> content of what lies in the guest's folder when it starts."""
    try:
        return {name: base64.b64decode(content) for name, content in reproducer.files.items()}
    except ValueError as error:
        raise UsageError("the reproducer's files are damaged", where=reproducer.finding, because=str(error)) from error


def _files_in(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode() for path in paths}


def read_reproducer(name: str) -> Reproducer:
    """Read RUN/reproducers/ID.json. Raises UsageError when there is none."""
    path = Path(name)
    if not path.is_file():
        raise UsageError(
            "no such reproducer", where=name, remedy="the report's `replay` line names it: RUN/reproducers/ID.json"
        )
    try:
        return json_codec.decode(unsealed(path.read_bytes()), Reproducer)
    except msgspec.DecodeError as error:
        raise UsageError("not a reproducer", where=name, because=str(error)) from error
