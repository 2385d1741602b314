"""A vector set that one machine saved is the same on every other machine."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from harness.core.byte_diff import DifferenceError, excerpt, parted
from harness.core.finding import Difference
from suites._shared.formats import rdb
from suites._shared.keyspace import server
from suites._shared.keyspace.values import Foreign
from suites._shared.needs import skip_in_short_tiers
from suites._shared.paired_servers import differing
from suites.vectors.model import KINDS, agrees, length, projected, saved_set, some_vectors, turned

if TYPE_CHECKING:
    from harness.protocol.resp import Client
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites.vectors.model import Vector

DIMENSION = 70
"""More than the 64 signs that fit a word."""
COUNT = 12
REDUCED = 9
ATTRIBUTE = b'{"year": 1999}'
ATTRIBUTED = (0, 5)


class Carried(NamedTuple):
    """A set, and the options with which VADD makes it."""

    option: str
    reduced: int = 0


SETS = {
    "bytes": Carried("Q8"),
    "single-precision": Carried("NOQUANT"),
    "signs": Carried("BIN"),
    "projected": Carried("Q8", REDUCED),
}
every_set = pytest.mark.parametrize("name", SETS)


def vectors() -> list[Vector]:
    """The same vectors on every machine and in every run."""
    return some_vectors(random.Random(20), COUNT, DIMENSION)


def making(name: str) -> list[tuple[Any, ...]]:
    """The commands that make the set of that name."""
    option, reduced = SETS[name]
    before = ("REDUCE", reduced) if reduced else ()
    found: list[tuple[Any, ...]] = []
    for number, vector in enumerate(vectors()):
        after = ("SETATTR", ATTRIBUTE) if number in ATTRIBUTED else ()
        found.append(("VADD", name, *before, "VALUES", DIMENSION, *map(repr, vector), number, option, *after))
    return found


def check_set(client: Client, name: str, writer: str, cell: CellSpec) -> None:
    """Require that a server of the cell's target has the set that another target, the writer, saved. The test compares
    elements, vectors, attributes, and the results of a search.
    """
    reader = cell.runner.target
    machine = reader if writer == reader.name else cell.peers[writer].runner.target
    # A known bug occurs only between machines of different byte orders. The message distinguishes it from other bugs.
    order = "the same" if machine.endianness == reader.endianness else "the other"
    saved = f"a set that {writer}, of {order} byte order, saved"
    option, reduced = SETS[name]
    kind = KINDS[option]
    assert client.pipeline([("VCARD", name), ("VDIM", name)]) == [COUNT, reduced or DIMENSION]
    for number, vector in enumerate(vectors()):
        due, tolerance = kind.kept(projected(vector, reduced) if reduced else vector)
        request = ("VEMB", name, number)
        reply, attribute, similar = client.pipeline(
            [
                request,
                ("VGETATTR", name, number),
                ("VSIM", name, "VALUES", DIMENSION, *map(repr, vector), "COUNT", 1, "WITHSCORES"),
            ]
        )
        if not agrees(reply, due, tolerance):
            expected = [repr(x).encode() for x in due]
            message = f"{request}: {reply!r:.200} of {saved}, due {expected!r:.200}"
            raise differing(request, reply, expected, reader.name, message, reader=writer)  # type: ignore[arg-type]
        assert attribute == (ATTRIBUTE if number in ATTRIBUTED else None)
        assert isinstance(similar, list)
        # The server projects the query with the saved matrix.
        nearest = f"{similar!r} is the nearest to element {number} of {saved}"
        assert similar[0] == b"%d" % number, nearest
        assert abs(float(similar[1]) - 1) <= kind.tolerance, nearest  # type: ignore[arg-type]


@every_set
def test_what_a_dump_holds_has_one_byte_order(name: str, cell: CellSpec, guest: Guest) -> None:
    with server.client(guest) as client:
        client.pipeline([("FLUSHALL",), *making(name)])
        payload = client.command("DUMP", name)
    assert isinstance(payload, bytes)
    value = rdb.read_dump(payload)[1]
    assert isinstance(value, Foreign)
    assert value.module == "vectorset"
    found = saved_set(value.items)
    option, reduced = SETS[name]
    assert (found.dimension, found.option, len(found.vectors)) == (reduced or DIMENSION, option, COUNT)
    assert found.attributes == {b"%d" % number: ATTRIBUTE for number in ATTRIBUTED}
    pieces = []
    if reduced:
        columns = [projected(tuple(float(at == one) for at in range(DIMENSION)), reduced) for one in range(DIMENSION)]
        matrix = [column[row] for row in range(reduced) for column in columns]
        pieces.append(Piece("projection", found.matrix, "f", 4, matrix, 1e-6))
    for number, vector in enumerate(vectors()):
        raw, kept = found.vectors[b"%d" % number], projected(vector, reduced) if reduced else vector
        largest, norm = max(map(abs, kept)), length(kept)
        if option == "NOQUANT":
            pieces.append(Piece("vector", raw, "f", 4, [x / norm for x in kept], 1e-5))
        elif option == "Q8":
            pieces.append(Piece("vector", raw, "b", 1, [127 * x / largest for x in kept], 0.501))
        else:
            signs = sum(1 << at for at, x in enumerate(kept) if x > 0)
            pieces.append(Piece("vector", raw, "B", 8, [*map(float, signs.to_bytes(len(raw), "little"))], 0))
        pieces.append(Piece("length of a vector", found.norms[b"%d" % number], "f", 4, [norm], 1e-4 * norm))
    for piece in pieces:
        piece.check(f"reply to DUMP {name}", cell.runner.target.name)


class Piece(NamedTuple):
    """Bytes of a saved set, and the numbers that they must hold."""

    what: str
    content: bytes
    form: str
    """The number's format character in `struct`."""
    word: int
    """The size in bytes of the words that the server holds in memory. Signs are bits of words of 8 bytes."""
    numbers: list[float]
    tolerance: float

    def check(self, where: str, writer: str) -> None:
        """Require that the bytes hold the numbers, least significant byte first. Raises DifferenceError."""
        if self._holds(self.content):
            return
        due = struct.pack(
            f"<{len(self.numbers)}{self.form}", *(self.numbers if self.form == "f" else map(round, self.numbers))
        )
        at = parted(due, self.content)
        difference = Difference(
            where=where,
            record=f"{self.what} of a vector set",
            writer=writer,
            reader="a model",
            expected=excerpt(due, at),
            actual=excerpt(self.content, at),
        )
        order = (
            ", with the bytes of each word in the opposite order"
            if self._holds(turned(self.content, self.word))
            else ""
        )
        raise DifferenceError(f"it holds {self.content.hex()[:60]} as {self.what}{order}", difference)

    def _holds(self, content: bytes) -> bool:
        form = f"<{len(self.numbers)}{self.form}"
        if len(content) != struct.calcsize(form):
            return False
        return agrees(list(struct.unpack(form, content)), self.numbers, self.tolerance)


@every_set
def test_a_dump_of_a_peer_is_restored(
    name: str, writer: str, cell: CellSpec, guest: Guest, start_guest: StartGuest
) -> None:
    with server.client(start_guest(target=writer)) as source:
        source.pipeline(making(name))
        payload = source.command("DUMP", name)
    assert isinstance(payload, bytes)
    with server.client(guest) as client:
        assert client.pipeline([("FLUSHALL",), ("RESTORE", name, 0, payload)]) == [b"OK", b"OK"]
        check_set(client, name, writer, cell)


def test_a_file_of_a_peer_is_loaded(writer: str, cell: CellSpec, start_guest: StartGuest) -> None:
    """A file has the same content as a dump, so one kind of set suffices."""
    source = start_guest(target=writer)
    with server.client(source) as client:
        client.pipeline(making("bytes"))
    with server.client(start_guest(files={"dump.rdb": server.saved(source)})) as client:
        check_set(client, "bytes", writer, cell)


def test_the_commands_of_a_peers_append_only_file_make_the_same_sets(
    writer: str, cell: CellSpec, start_guest: StartGuest
) -> None:
    options = ["--appendonly", "yes"]
    source = start_guest(target=writer, options=options)
    with server.client(source) as client:
        for name in SETS:
            client.pipeline(making(name))
    files = server.append_only_files(source)
    with server.client(start_guest(options=options, files=files)) as client:
        for name in SETS:
            check_set(client, name, writer, cell)


@pytest.fixture
def _past_quick(cell: CellSpec) -> None:
    skip_in_short_tiers(cell, "Redis 8.0 crashes on every machine (docs/FOUND.md), which must not block a merge")


@pytest.mark.usefixtures("_past_quick")
def test_an_append_only_file_with_an_addition_in_the_background_is_loaded(start_guest: StartGuest) -> None:
    options = ["--appendonly", "yes"]
    source = start_guest(options=options)
    with server.client(source) as client:
        client.pipeline([("VADD", "k", "VALUES", 1, 1, number, "CAS") for number in range(2)])
    with server.client(start_guest(options=options, files=server.append_only_files(source))) as client:
        assert client.command("VCARD", "k") == 2


@pytest.mark.usefixtures("_past_quick")
def test_an_append_only_file_is_rewritten_as_commands(cell: CellSpec, start_guest: StartGuest) -> None:
    options = ["--appendonly", "yes", "--aof-use-rdb-preamble", "no"]
    guest = start_guest(options=options)
    with server.client(guest) as client:
        client.pipeline(making("bytes"))
    server.await_rewrite(guest)
    with server.client(start_guest(options=options, files=server.append_only_files(guest))) as client:
        check_set(client, "bytes", cell.runner.target.name, cell)
