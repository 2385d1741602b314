"""Changes to the stored evidence of a run, of which none may be believed.

Each change is one function. A change of a file's content gets the content, contents of other files of the run, and a
seeded generator, and returns another content, or the same if it cannot change this one.
"""

from __future__ import annotations

import os
import random
import shutil
from typing import TYPE_CHECKING, TypeAlias

from harness.analysis import source_excerpt
from harness.core.errors import PlumblineError
from harness.core.finding import Verdict
from harness.judge import conclusion
from harness.record import evidence_seal, run_folder, stored_run
from tests.support import fakes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

Change: TypeAlias = "Callable[[bytes, Sequence[bytes], random.Random], bytes]"


def _flipped(content: bytes, _: Sequence[bytes], draw: random.Random) -> bytes:
    if not content:
        return b"\1"
    changed = bytearray(content)
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _of_lines(content: bytes, draw: random.Random, change: Callable[[list[bytes], int], object]) -> bytes:
    lines = content.splitlines(keepends=True)
    if lines:
        change(lines, draw.randrange(len(lines)))
    return b"".join(lines)


def _moved(lines: list[bytes], at: int) -> None:
    lines.insert(0, lines.pop(at))


def _digit(content: bytes, _: Sequence[bytes], draw: random.Random) -> bytes:
    """Another number: what counts tests, offsets and processes."""
    places = [place for place, byte in enumerate(content) if 48 <= byte <= 57]
    if not places:
        return content
    at = draw.choice(places)
    other = draw.choice([digit for digit in b"0123456789" if digit != content[at]])
    return content[:at] + bytes([other]) + content[at + 1 :]


def _words(content: bytes, _: Sequence[bytes], draw: random.Random) -> bytes:
    """Another outcome, as a person who wants another verdict writes it."""
    swaps = [(b"failed", b"passed"), (b"passed", b"failed"), (b"skipped", b"passed"), (b"SIGBUS", b"SIGKIL")]
    fitting = [swap for swap in swaps if swap[0] in content]
    return content.replace(*draw.choice(fitting)) if fitting else content


CONTENT: dict[str, Change] = {
    "cut": lambda content, _, draw: content[: draw.randrange(len(content) or 1)],
    "begun late": lambda content, _, draw: content[draw.randrange(len(content) or 1) :],
    "one bit flipped": _flipped,
    "a line lost": lambda content, _, draw: _of_lines(content, draw, lambda lines, at: lines.pop(at)),
    "a line twice": lambda content, _, draw: _of_lines(content, draw, lambda lines, at: lines.insert(at, lines[at])),
    "a line moved": lambda content, _, draw: _of_lines(content, draw, _moved),
    "another digit": _digit,
    "another word": _words,
    "bytes added": lambda content, _, draw: content + draw.randbytes(draw.randrange(1, 40)),
    "emptied": lambda _, __, ___: b"",
    "of another file": lambda _, others, draw: draw.choice(others),
}


def _renamed(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}.old"))


def _linked(path: Path) -> None:
    _renamed(path)
    fakes.write(path.with_name(f"{path.name}.other"), "{}\n")
    path.symlink_to(f"{path.name}.other")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


PLACE: dict[str, Callable[[Path], None]] = {
    "removed": lambda path: path.unlink(),
    "renamed": _renamed,
    "a link": _linked,
    "a folder": _folder,
    "a pipe": _pipe,
    "its folder removed": lambda path: shutil.rmtree(path.parent),
}
"""What may stand in a file's place."""
NEW = ("events.jsonl", "guest-77/faults.jsonl", "guest-77/log", "problem", "inputs/dump.rdb")
"""Files that a cell may get."""


def files_of(run: Path) -> list[Path]:
    """The files from which a run is judged."""
    seals = sorted(run.rglob(evidence_seal.NAME))
    evidence = [path for seal in seals for path in evidence_seal.evidence_files(seal.parent)]
    # Excerpts only show code, and match entries of known lists: without them nothing is known.
    names = sorted(run_folder.read_run(run).beside.keys() - {source_excerpt.FILE})
    beside = [run / name for name in names if (run / name).is_file()]
    return list(dict.fromkeys([run / "run.json", *seals, *evidence, *beside]))


def verdict_of(run: Path, known: Path) -> str:
    """The verdict of a run folder; empty if it is refused."""
    try:
        stored_run.refuse_ways_out(run)
        judgement, _ = conclusion.conclude(stored_run.read(run), known, fakes.quiet())
    except PlumblineError:
        return ""
    return judgement.verdict


def believed(run: Path, numbers: Iterable[int], seed: int) -> Iterator[tuple[str, str]]:
    """Change a run's evidence, restoring it after each change. Yields each change with what was wrongly believed; empty
    if nothing was. A change depends on its number and the seed.
    """
    known = fakes.write(run.with_name(f"{run.name}-known.toml"), "findings = []\n")
    kept = run.with_name(f"{run.name}-kept")
    usual = verdict_of(run, known)
    assert usual in {Verdict.PASS, Verdict.FAIL}, f"the unchanged run is {usual}"
    shutil.copytree(run, kept, symlinks=True)
    names = [path.relative_to(run) for path in files_of(run)]
    contents = [(kept / name).read_bytes() for name in names]
    allowed = {"", Verdict.UNKNOWN, *([Verdict.FAIL] if usual == Verdict.FAIL else [])}
    for number in numbers:
        draw = random.Random(f"{seed} change {number}")
        what = ""
        while not what:
            # Some changes leave some files as they are.
            at = draw.randrange(len(names))
            what = _changed_once(run, names[at], contents[at], contents, draw)
        verdict = verdict_of(run, known)
        yield f"{names[at]}: {what}", "" if verdict in allowed else f"{verdict} instead of UNKNOWN"
        _restore(run, kept, names[at])
    assert verdict_of(run, known) == usual, "the restored run has another verdict"


def _changed_once(run: Path, name: Path, content: bytes, others: Sequence[bytes], draw: random.Random) -> str:
    """Change one file in a drawn way. Returns the way; empty if the file is as before."""
    path = run / name
    kind = draw.choice([*CONTENT, *CONTENT, *PLACE, "added"])
    if kind in PLACE:
        if kind == "its folder removed" and path.parent == run:
            return ""
        PLACE[kind](path)
        return kind
    if kind == "added":
        new = path.parent / draw.choice(NEW)
        if new.exists() or not (path.parent / evidence_seal.NAME).is_file():
            return ""
        fakes.write(new, draw.choice(['{"event":"access"}\n', "", "x"]))
        return f"{new.name} added"
    changed = CONTENT[kind](content, others, draw)
    if changed == content:
        return ""
    path.write_bytes(changed)
    return kind


def _restore(run: Path, kept: Path, name: Path) -> None:
    """Restore the file that was changed, and what stands beside it; its folder if that was removed."""
    place = (run / name).parent
    if not place.is_dir():
        shutil.copytree(kept / name.parent, place, symlinks=True)
        return
    beside = [run / f"{name}.old", run / f"{name}.other", *(place / new for new in NEW)]
    for one in (run / name, *beside):
        if one == run / name or not (kept / one.relative_to(run)).exists():
            shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink(missing_ok=True)
    for new in (place / "guest-77", place / "inputs"):
        if not (kept / new.relative_to(run)).exists():
            shutil.rmtree(new, ignore_errors=True)
    shutil.copy2(kept / name, run / name)
