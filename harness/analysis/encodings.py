"""The encodings of memory accesses in a program, from the listing of its target's objdump.

An encoding is an instruction's name with the form of its operands, `ldr r, [r, #]!`: what a decoder distinguishes.
Accesses to single bytes and prefetches do not count, because no address is misaligned for them.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from harness.core.processes import process

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.isa.architecture import AccessNotation

LIST_SECONDS = 300.0
_LINE = re.compile(r"^ *[\da-f]+:[\t ]([\da-f ]+?) *\t(.*)$|^[\da-f]+ <(.*)>:$", re.MULTILINE)
"""` ADDRESS:<tab>code<tab>name operands`, or the symbol of what follows. LLVM writes a space for the first tab."""
_COMMENT = re.compile(r"\s(?:@|//|!|;|#(?= [\da-f]+ <)).*| ?<[^>]*>")


def listing(objdump: str, program: Path, options: Sequence[str] = ()) -> str:
    """The instructions of a program or an archive. Raises InfrastructureError if objdump is missing or fails."""
    return process.run_successfully(
        [objdump, "-d", *options, program], problem=f"cannot disassemble {program}", deadline_seconds=LIST_SECONDS
    ).text


def encodings(text: str, notation: AccessNotation) -> Counter[str]:
    """How often each encoding occurs in a listing."""
    written = Counter((code, instruction) for code, instruction, _ in _LINE.findall(text) if instruction)
    found: Counter[str] = Counter()
    for (code, instruction), times in written.items():
        found[_encoding(code, instruction, notation)] += times
    del found[""]
    return found


def labelled(text: str, notation: AccessNotation, prefix: str) -> set[str]:
    """The encodings of the instructions of a listing that a symbol with a prefix follows."""
    found, last = set(), ("", "")
    for code, instruction, symbol in _LINE.findall(text):
        if symbol.startswith(prefix):
            found.add(_encoding(*last, notation))
        elif instruction:
            last = code, instruction
    return found - {""}


def _encoding(code: str, instruction: str, notation: AccessNotation) -> str:
    """The encoding of an instruction; empty if it makes no access that can be misaligned."""
    text = " ".join(_COMMENT.sub("", instruction).split())
    if not re.match(notation.accesses, text):
        return ""
    if notation.states:
        text = f"{notation.states[tuple(map(len, code.split()))]} {text}"
    for pattern, replacement in notation.alike:
        text = re.sub(pattern, replacement, text)
    return text
