"""Records which programs below a command were not built for its target, as far as their debug information tells."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from harness.analysis.program_traits.program_types import built_unlike
from harness.core import untrusted_text
from harness.record import program_launch

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.target_model import Target

MOST_READ = 50
"""How many programs' debug information is read."""
NARROW = 32


def note_builds(cell: Path, target: Target, triple: str) -> None:
    """Write the record of a cell's programs that the target's compiler would have made otherwise.

    Other targets' programs may run as the target's, such as those for a later processor, or with another `time_t`.
    `triple`: of the target's compiler.
    """
    # Of 32-bit C libraries only GNU's has both sizes: a macro chooses.
    chosen = 8 if "-D_TIME_BITS=64" in target.compiler_flags else 4
    time_bytes = chosen if target.width_bits == NARROW and triple.rpartition("-")[2].startswith("gnu") else 0
    launches = filter(None, map(program_launch.read_launch, program_launch.guests(cell)))
    paths = dict.fromkeys(launch.program for launch in launches if not launch.is_probe)
    unlike = {path: built_unlike(path, tuple(target.compiler_flags), time_bytes) for path in islice(paths, MOST_READ)}
    lines = [f"{how}\t{untrusted_text.as_utf8(path)}\n" for path, how in unlike.items() if how]
    if lines:
        (cell / program_launch.BUILT_OTHERWISE).write_text("".join(lines), "utf-8")
