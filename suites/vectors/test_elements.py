"""A vector set contains what was added: vectors in both forms and of every kind, attributes, links."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.paired_servers import differing, moved_on
from suites.vectors.model import KINDS, Quantisation, agrees, blob, length, projected, some_vectors, turned

if TYPE_CHECKING:
    from suites._shared.paired_servers import PairedServers
    from suites.vectors.model import Vector

# The server adds 8, 4 or 1 components at a time. A word of signs has 64.
DIMENSIONS = [1, 3, 4, 7, 8, 9, 33, 64, 65, 300]
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def expect_vector(both: PairedServers, request: list[Any], vector: Vector, kind: Quantisation) -> None:
    """Require that the guest replies with a vector's components."""
    (reply,) = both.guest.pipeline([request])
    expected, tolerance = kind.kept(vector)
    if not agrees(reply, expected, tolerance):
        due = [repr(x).encode() for x in expected]
        raise differing(request, reply, due, both.target, reader="a model")  # type: ignore[arg-type]


def values(vector: Vector) -> list[Any]:
    """A vector's words after VALUES."""
    return ["VALUES", len(vector), *map(repr, vector)]


@every_kind
def test_a_vector_is_told_as_it_was_added(both: PairedServers, kind: Quantisation) -> None:
    for dimension, scale in [*((dimension, 1.0) for dimension in DIMENSIONS), (9, 1e-6), (9, 1e6)]:
        (vector,) = some_vectors(both.random, 1, dimension)
        vector = tuple(scale * x for x in vector)
        both.expect([["DEL", "k"], ["VADD", "k", *values(vector), "e", kind.option]], [1], f"{dimension} components")
        expect_vector(both, ["VEMB", "k", "e"], vector, kind)


@every_kind
def test_a_reduced_vector_is_the_projection_of_what_was_added(both: PairedServers, kind: Quantisation) -> None:
    for dimension, reduced in ((3, 2), (24, 8), (65, 64), (100, 70)):
        for number, vector in enumerate(some_vectors(both.random, 3, dimension)):
            both.ask([["VADD", dimension, "REDUCE", reduced, *values(vector), number, kind.option]])
            expect_vector(both, ["VEMB", dimension, number], projected(vector, reduced), kind)
        both.expect([["VDIM", dimension], ["VCARD", dimension]], [reduced, 3], "a reduced set")


@pytest.mark.parametrize("dimension", [1, 5, 64])
def test_a_blob_of_vadd_is_little_endian_at_every_offset(both: PairedServers, dimension: int) -> None:
    kind = KINDS["NOQUANT"]
    vectors = some_vectors(both.random, 16, dimension)
    requests = [["VADD", "k", "FP32", blob(one), number, kind.option] for number, one in enumerate(vectors)]
    both.expect(moved_on(requests)[1::2], [1] * len(vectors), "blobs")
    for number, vector in enumerate(vectors):
        expect_vector(both, ["VEMB", "k", number], vector, kind)


@pytest.mark.parametrize("dimension", [1, 5, 64])
def test_raw_components_are_little_endian(both: PairedServers, dimension: int) -> None:
    """RAW returns the stored bytes: the same on every machine, in the form that FP32 accepts."""
    (vector,) = some_vectors(both.random, 1, dimension)
    request = ["VEMB", "k", "e", "RAW"]
    for kind in KINDS.values():
        both.ask([["DEL", "k"], ["VADD", "k", *values(vector), "e", kind.option]])
        (reply,) = both.guest.pipeline([request])
        assert isinstance(reply, list)
        name, raw, norm, *span = reply
        assert name == kind.name.encode()
        assert isinstance(raw, bytes)
        opposite = False
        if kind.option == "NOQUANT":
            found = struct.unpack(f"<{dimension}f", raw)
            expected, tolerance = tuple(x / length(vector) for x in vector), 1e-5
            opposite = agrees([*struct.unpack(f"<{dimension}f", turned(raw, 4))], expected, tolerance)
        elif kind.option == "Q8":
            found = struct.unpack(f"{dimension}b", raw)
            expected, tolerance = tuple(127 * x / max(map(abs, vector)) for x in vector), 0.501
            assert agrees(span, [max(map(abs, vector)) / length(vector)], 1e-5), f"{request}: {reply!r:.300}"
        else:
            bits = int.from_bytes(raw, "little")
            found, expected, tolerance = (
                (float(bits),),
                (float(sum(1 << at for at, x in enumerate(vector) if x > 0)),),
                0,
            )
        if not agrees(list(found), expected, tolerance):
            order = ", the bytes of each number in the opposite order" if opposite else ""
            message = f"{request}: {raw!r:.200} holds {found!r:.200}, due {expected!r:.200}{order}"
            raise differing(request, list(found), list(expected), both.target, message, reader="a model")
        assert agrees([norm], [length(vector)], 1e-4 * length(vector)), f"{request}: {reply!r:.300}"


def test_an_element_comes_changes_and_goes(both: PairedServers) -> None:
    one, other = ["VALUES", 2, 3, 4], ["VALUES", 2, -1, "1e-3"]
    both.expect([["VCARD", "k"], ["VISMEMBER", "k", "a"], ["VEMB", "k", "a"]], [0, 0, None], "an absent key")
    both.expect([["VADD", "k", *one, "a"], ["VADD", "k", *one, "b", "CAS"]], [1, 1], "new elements")
    both.expect([["VADD", "k", *other, "a"]], [0], "a changed element")
    expect_vector(both, ["VEMB", "k", "a"], (-1.0, 1e-3), KINDS["Q8"])
    expect_vector(both, ["VEMB", "k", "b"], (3.0, 4.0), KINDS["Q8"])
    both.expect([["VCARD", "k"], ["VDIM", "k"], ["TYPE", "k"]], [2, 2, b"vectorset"], "two elements")
    both.expect([["VISMEMBER", "k", "a"], ["VISMEMBER", "k", "c"]], [1, 0], "members")
    both.expect([["VREM", "k", "c"], ["VREM", "k", "a"], ["VCARD", "k"]], [0, 1, 1], "a removal")
    both.expect([["VREM", "k", "b"], ["EXISTS", "k"]], [1, 0], "the last removal")


def test_attributes_are_set_told_and_counted(both: PairedServers) -> None:
    long = '{"text": "' + "x" * 300 + '"}'
    both.ask([["VADD", "k", "VALUES", 1, 1, "a", "SETATTR", "{}"], ["VADD", "k", "VALUES", 1, 1, "b"]])
    both.expect([["VGETATTR", "k", "a"], ["VGETATTR", "k", "b"]], [b"{}", None], "as added")
    both.expect([["VSETATTR", "k", "b", long], ["VSETATTR", "k", "c", long]], [1, 0], "set")
    both.expect([["VGETATTR", "k", "b"]], [long.encode()], "as set")
    assert about(both)[b"attributes-count"] == 2
    both.expect([["VSETATTR", "k", "a", ""], ["VGETATTR", "k", "a"]], [1, None], "removed")
    both.expect([["VADD", "k", "VALUES", 1, -1, "b"], ["VGETATTR", "k", "b"]], [0, long.encode()], "kept by a change")
    assert about(both)[b"attributes-count"] == 1


def about(both: PairedServers) -> dict[Any, Any]:
    """The reply to VINFO for the key k."""
    (flat,) = both.guest.pipeline([["VINFO", "k"]])
    assert isinstance(flat, list)
    return dict(zip(flat[::2], flat[1::2], strict=True))


@every_kind
def test_a_set_tells_its_settings(both: PairedServers, kind: Quantisation) -> None:
    vectors = some_vectors(both.random, 20, 9)
    both.ask(
        [["VADD", "k", "REDUCE", 5, *values(one), n, kind.option, "M", 7, "EF", 50] for n, one in enumerate(vectors)]
    )
    information = about(both)
    expected = {b"quant-type": kind.name.encode(), b"hnsw-m": 7, b"vector-dim": 5, b"projection-input-dim": 9}
    expected |= {b"size": 20, b"attributes-count": 0, b"hnsw-max-node-uid": 20}
    assert {name: information[name] for name in expected} == expected
    # Levels are random: each has about a quarter of the elements of the level below.
    assert 0 <= information[b"max-level"] <= 16


@every_kind
def test_links_are_mutual_and_have_the_similarity_of_their_ends(both: PairedServers, kind: Quantisation) -> None:
    vectors = {b"%d" % n: one for n, one in enumerate(some_vectors(both.random, 40, 12))}
    both.ask([["VADD", "k", *values(one), name, kind.option, "M", 4] for name, one in vectors.items()])
    replies = both.guest.pipeline([["VLINKS", "k", name, "WITHSCORES"] for name in vectors])
    links = set()
    for name, levels in zip(vectors, replies, strict=True):
        assert isinstance(levels, list)
        # The highest level comes first.
        for level, flat in enumerate(reversed(levels)):
            assert isinstance(flat, list)
            for other, score in zip(flat[::2], flat[1::2], strict=True):
                assert isinstance(other, bytes)
                links.add((level, name, other))
                expected = kind.similarity(vectors[name], vectors[other])
                assert agrees([score], [expected], kind.tolerance), f"{name!r}-{other!r}: {score!r}, not {expected}"
    assert links == {(level, other, name) for level, name, other in links}
    assert {name for _, name, _ in links} == set(vectors)


def test_random_elements_are_elements(both: PairedServers) -> None:
    names = {b"%d" % number for number in range(30)}
    both.ask([["VADD", "k", "VALUES", 1, 1, name] for name in names])
    one, few, many, repeated = both.guest.pipeline([["VRANDMEMBER", "k", *n] for n in ([], [5], [100], [-100])])
    assert one in names
    assert isinstance(few, list)
    assert isinstance(many, list)
    assert isinstance(repeated, list)
    assert (len(few), len(set(few)), set(few) <= names) == (5, 5, True)
    assert sorted(many) == sorted(names)  # type: ignore[type-var]
    assert (len(repeated), set(repeated) <= names) == (100, True)


def test_wrong_words_are_refused_in_the_same_words(both: PairedServers) -> None:
    both.ask([["SET", "s", 1], ["VADD", "k", "VALUES", 2, 1, 2, "a", "Q8"]])
    both.ask(
        [
            *(["VADD", "k", *wrong, "e"] for wrong in (["VALUES", 0], ["VALUES", 3, 1], ["FP32", "abc"], ["FP32", ""])),
            *(["VADD", "k", "VALUES", 2, *wrong, "e"] for wrong in (["x", 1], [1, "0x"], ["1e", 1])),
            ["VADD", "k", "VALUES", 3, 1, 2, 3, "e"],
            *(
                ["VADD", "k", "VALUES", 2, 1, 2, "e", *wrong]
                for wrong in (["BIN"], ["M", 5], ["M", 3], ["EF", 0], ["X"])
            ),
            ["VADD", "k", "REDUCE", 2, "VALUES", 2, 1, 2, "e"],
            ["VADD", "k", "REDUCE", 0, "VALUES", 2, 1, 2, "e"],
            *([name, "s", *["e"] * words] for name, words in (("VCARD", 0), ("VDIM", 0), ("VINFO", 0), ("VEMB", 1))),
            *([name, "s", "e"] for name in ("VREM", "VLINKS", "VGETATTR", "VISMEMBER")),
            ["VSETATTR", "s", "e", "{}"],
            ["VRANDMEMBER", "s"],
            ["VRANDMEMBER", "k", "x"],
            ["VADD", "s", "VALUES", 1, 1, "e"],
            ["VDIM", "none"],
            *(["VSIM", "k", "VALUES", 2, 1, 2, *wrong] for wrong in (["COUNT", 0], ["EF", -1], ["EPSILON", 0], ["X"])),
            *(["VSIM", "k", "VALUES", 2, 1, 2, "FILTER", wrong] for wrong in ("", ".a >", "(.a", ".a > 'x", ".a $ 1")),
            ["VSIM", "k", "ELE", "none"],
            ["VSIM", "k", "VALUES", 3, 1, 2, 3],
            ["VSIM", "s", "ELE", "e"],
        ]
    )


def test_every_command_of_the_module_is_known_here(both: PairedServers) -> None:
    """A new command needs a test. The server lists the module's commands, but not their options."""
    (known,) = both.oracle.pipeline([["COMMAND", "LIST", "FILTERBY", "MODULE", "vectorset"]])
    assert isinstance(known, list)
    assert sorted(known) == sorted(  # type: ignore[type-var]
        b"VADD VCARD VDIM VEMB VGETATTR VINFO VISMEMBER VLINKS VRANDMEMBER VREM VSETATTR VSIM".split()
    )


def test_vectors_are_told_in_resp3_too(both: PairedServers) -> None:
    requests = [["HELLO", 3], ["VADD", "k", "VALUES", 1, 2, "e"], ["VISMEMBER", "k", "e"], ["VEMB", "k", "e"]]
    replies = both.guest.pipeline([*requests, ["VREM", "k", "none"]])[1:]
    assert replies == [True, True, [2.0], False]
