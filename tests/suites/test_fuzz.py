"""The fuzz suite's pure parts: drawing, damage, the corpus, and the shrinking of failing streams."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from hiredis import ReplyError
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.model import Abilities
from harness.plan.catalog import Catalog
from harness.protocol.command_stream import (
    Stream,
    clients_of,
    command,
    from_text,
    from_wire,
    read_stream,
    text_of,
    wire,
)
from harness.protocol.stream_shrinker import Shrinker
from harness.record import cell_events, event_log
from harness.record.cell_events import NO_PONG
from harness.run.cell_spec import PeerServer
from harness.run.extra_servers import StartGuest
from harness.run.server_process import StartError
from harness.run.session.cell_session import CellSession
from suites._shared.checksums import sealed
from suites.fuzz import corpus, corrupt, generate, grammar, mutate, survival
from suites.fuzz.acceptance import Acceptance
from suites.fuzz.emptying import SELDOM, Emptying, awaits_time, undoing
from suites.fuzz.failure import Failure, mistaken, native_gone
from suites.fuzz.model import UNPREDICTED, Model
from suites.fuzz.session import FAILURES, FuzzSession
from suites.fuzz.stored_data import LARGEST_PAYLOAD_BYTES, stored
from suites.fuzz.survival import KEYS, REFUSED
from suites.fuzz.turns import Turns
from suites.fuzz.values import INTEGERS, Draw
from tests.support import cells, fakes
from tests.unit.record.test_recording_proxy import RecordedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.protocol.resp import Reply
    from harness.run.server_process import Guest

seeds = st.integers(0, 1 << 32)
few = settings(max_examples=40)


@few
@given(seeds)
def test_the_same_seed_draws_the_same_stream(seed: int) -> None:
    assert generate.generate(random.Random(seed)) == generate.generate(random.Random(seed))


@few
@given(seeds)
def test_a_stream_survives_its_file_and_its_wire(seed: int) -> None:
    stream = generate.generate(random.Random(seed))
    assert from_text(text_of(stream)) == stream
    assert [one.words for one in from_wire(wire(stream))] == [one.words for one in stream]


def test_every_kind_that_the_grammar_names_is_drawn() -> None:
    assert grammar.unknown_kinds() == set()


def test_every_line_of_the_grammar_is_used() -> None:
    drawn = {one.name for seed in range(600) for one in generate.generate(random.Random(seed))}
    assert {grammar.expand(line, Draw(random.Random(1))).name for line in grammar.all_lines()} <= drawn


def test_commands_that_the_grammar_does_not_send_are_reported() -> None:
    known = {"GET", "CLIENT ID", "CLIENT REPLY", "CLUSTER NODES", "SUBSCRIBE", "RPUSH", "INVENTED", "CLIENT INVENTED"}
    assert grammar.left_out(known) == ["CLIENT INVENTED", "INVENTED"]
    # Before Redis 7 the table of commands has no subcommands.
    assert grammar.left_out({"CLIENT", "CLUSTER", "INVENTED"}) == ["INVENTED"]


def test_no_sent_command_is_listed_as_unsent() -> None:
    named = {name for one in grammar.grammar().unsent for name in one.commands}
    assert not grammar.sent(named)


def test_the_second_client_sends_its_own_lines_and_only_it_waits_for_the_first_one() -> None:
    streams = [generate.generate(random.Random(seed), ["blocking"]) for seed in range(60)]
    lasting = {one.client for stream in streams for one in stream if one.words[-1] == b"0" and one.name == "BLPOP"}
    assert lasting == {1}
    assert {one.name for stream in streams for one in stream if one.client == 0} >= {"LPUSH", "XADD", "CLIENT"}
    assert from_text(text_of(streams[0])) == streams[0]
    alone = [generate.generate(random.Random(seed), ["strings", "lists"]) for seed in range(60)]
    assert {clients_of(stream) for stream in alone} == {1}


def test_a_line_is_expanded_according_to_its_choices() -> None:
    draw = Draw(random.Random(1))
    assert {grammar.expand("BITOP AND|OR x", draw).words[1] for _ in range(40)} == {b"AND", b"OR"}
    pairs = {len(grammar.expand("MSET <field>,<value>+", draw).words) for _ in range(40)}
    assert len(pairs) > 2
    assert all(number % 2 for number in pairs)
    assert grammar.expand("ZADD y (<bit> [<field>", draw).words[2] in {b"(0", b"(1"}
    assert grammar.expand('EVAL "return 1" 0', draw).words == (b"EVAL", b"return 1", b"0")


@pytest.mark.parametrize(
    ("theme", "adding", "asking"),
    [
        ("lists", {"RPUSH", "LPUSH", "LSET"}, "LREM"),
        ("hashes", {"HSET", "HMSET"}, "HDEL"),
        ("sorted", {"ZADD"}, "ZREM"),
    ],
)
def test_commands_usually_ask_for_what_a_value_contains(theme: str, adding: set[str], asking: str) -> None:
    hits = []
    for seed in range(300):
        added: set[bytes] = set()
        for one in generate.generate(random.Random(seed), [theme]):
            if one.name in adding:
                added |= {*one.words[2:]}
            elif one.name == asking and added:
                hits.append(one.words[-1] in added)
    assert len(hits) > 100
    assert 0.5 < sum(hits) / len(hits) < 0.95


def test_most_streams_begin_with_values_and_some_do_not() -> None:
    lists = grammar.grammar().themes["lists"]
    begun = [grammar.expand(line, Draw(random.Random(1))).name for line in lists.fills]
    streams = [generate.generate(random.Random(seed), ["lists"]) for seed in range(200)]
    first = [next(one.name for one in stream if one.name not in {"CONFIG", "HELLO"}) in begun for stream in streams]
    assert 0.6 < sum(first) / len(first) < 0.95


def test_everything_comes_once_before_anything_comes_again() -> None:
    turns, dice = Turns(), random.Random(1)
    rounds = [[turns.next("group", range(20), dice) for _ in range(20)] for _ in range(3)]
    assert all(sorted(each) == list(range(20)) for each in rounds)
    assert rounds[0] != rounds[1]


def test_each_place_of_the_grammar_soon_has_every_boundary_value_and_each_theme_every_line() -> None:
    turns, dice = Turns(), random.Random(1)
    lines = [f"INCRBY s{number} <int>" for number in range(3)]
    drawn = {line: {int(grammar.expand(line, Draw(dice, turns)).words[2]) for _ in range(220)} for line in lines}
    assert all(found >= set(INTEGERS) for found in drawn.values())
    theme = grammar.grammar().themes["bits"]
    once = [generate.one_of(theme, Draw(dice, turns)).name for _ in theme.commands]
    assert sorted(once) == sorted(grammar.expand(line, Draw(dice)).name for line in theme.commands)


def test_several_words_fill_a_value() -> None:
    draw = Draw(random.Random(1))
    numbers = {len(grammar.expand("SADD e <narrow>++", draw).words) - 2 for _ in range(200)}
    assert min(numbers) == 3
    assert max(numbers) == 11


def test_the_integers_of_a_stream_fit_one_of_the_widths_of_encodings() -> None:
    for seed in range(40):
        draw = Draw(random.Random(seed))
        values = [int(draw.word("narrow")) for _ in range(200)]
        bits = max(max(value, ~value).bit_length() for value in values)
        assert bits in {7, 15, 31, 63}
        assert {-(1 << bits), (1 << bits) - 1} <= set(values)


def test_a_release_is_not_sent_what_it_lacks() -> None:
    names = {one.partition(" ")[0].lower() for line in grammar.all_lines() for one in line.partition(" ")[0].split("|")}
    known = Abilities(commands=tuple(names - {"vadd", "vsim", "hexpire", "lpos"} | {"config|get", "config|set"}))
    themes = grammar.of_release(known).themes
    every = grammar.grammar().themes
    assert [line for line in every["lists"].commands if line not in themes["lists"].commands] == [
        line for line in every["lists"].commands if line.startswith("LPOS")
    ]
    assert not any("RESETSTAT" in line for line in themes["server"].commands)
    lacking = Abilities(commands=tuple(name for name in names if not name.startswith("v")))
    assert set(every) - set(grammar.of_release(lacking).themes) == {"vectors"}
    # Nobody asked this one.
    assert grammar.of_release(Abilities()).themes == every
    sent = {
        one.name for seed in range(300) for one in generate.generate(random.Random(seed), (), grammar.of_release(known))
    }
    assert "LPOS" not in sent
    assert "LPUSH" in sent


def test_integers_are_near_every_limit_of_a_word() -> None:
    for bits in (8, 16, 32):
        assert {(1 << bits) - 1, 1 << bits, (1 << bits - 1) - 1, -(1 << bits - 1), -(1 << bits - 1) - 1} <= set(
            INTEGERS
        )
    assert max(INTEGERS) == (1 << 63) - 1
    assert min(INTEGERS) == -(1 << 63)


@few
@given(seeds)
def test_mutations_are_streams_that_can_be_sent(seed: int) -> None:
    draw = random.Random(seed)
    first, second = generate.generate(draw), generate.generate(draw)
    for changed in (mutate.mutate(first, second, draw), mutate.splice(first, second, draw)):
        assert len(changed) <= mutate.LONGEST
        assert from_text(text_of(changed)) == changed
        assert all(mutate.is_sane(one) for one in changed)


@pytest.mark.parametrize(
    ("line", "sane"),
    [
        ("SETRANGE k 4294967295 x", False),
        ("SETBIT k 65536 1", True),
        ("BITFIELD k SET i64 #9999999 -1", False),
        ("BITFIELD k SET i64 8 9223372036854775807", True),
        ("XADD x * f v", False),
        ("BLPOP l 0.002", True),
        ("BLPOP l 0", False),
        ("BLPOP l 1", False),
        ("BLMPOP 0.002 1 l LEFT", True),
        ("BZMPOP 65536 1 z MIN", False),
        ("XREAD BLOCK 1 STREAMS x $", True),
        ("XREADGROUP GROUP g c BLOCK 0 STREAMS x >", False),
        ("SET b v EX 100000000", True),
        ("SET b v px 12", False),
        ("GETEX b EX 5", False),
        ("PEXPIRE b 0", True),
        ("SETEX b 300 v", False),
        ("EXPIRE b 100000000", True),
        ("EXPIRE s 100000000", False),
        ("HPEXPIRE i 5 FIELDS 1 f", False),
        ("RESTORE s 0 x", True),
        ("RESTORE s 7 x", False),
        ("WAIT 1 1", True),
        ("WAIT 1 0", False),
        ("@2 BLPOP l 0", True),
        ("@2 BLPOP l 5", False),
        ("@2 XREAD BLOCK 0 STREAMS x $", True),
        ("@2 WAIT 1 0", False),
        ("INCRBY k 9223372036854775807", True),
        ("COMMAND LIST", False),
        ("command docs", False),
        ("COMMAND DOCS GET", True),
    ],
)
def test_commands_that_take_hundreds_of_megabytes_or_depend_on_the_clock_or_on_chance_are_not_sent(
    line: str, sane: bool
) -> None:
    assert mutate.is_sane(from_text(line)[0]) is sane


# DUMP of the string "abc" by a native redis-7.0.15.
ABC = bytes.fromhex("00036162630a00d9ac303d4172a2e2")
SAVED = b"REDIS0010\xfa\x09redis-ver"
"""How its files begin."""


def test_an_undamaged_payload_has_the_right_checksum() -> None:
    assert sealed(ABC) == ABC


@few
@given(seeds)
def test_a_damaged_payload_keeps_its_version_and_usually_matches_its_checksum(seed: int) -> None:
    draw = random.Random(seed)
    damaged = [corrupt.damaged_payload(ABC, draw) for _ in range(40)]
    assert all(one[-10:-8] == ABC[-10:-8] for one in damaged)
    fitting = sum(sealed(one) == one for one in damaged)
    assert 10 <= fitting < 40


def test_an_rdb_file_follows_the_format() -> None:
    content = corrupt.rdb_file({b"k": ABC, b"x" * 70: ABC}, SAVED)
    assert content.startswith(b"REDIS0010\xfe\x00" + b"\x00\x01k\x03abc" + b"\x00\x40\x46" + b"x" * 70 + b"\x03abc\xff")
    assert sealed(content) == content


def test_an_rdb_file_begins_like_the_servers_own_file() -> None:
    """Valkey 9 refuses files of version 80 and later that begin with the magic number of Redis."""
    assert corrupt.rdb_file({b"k": ABC}, b"VALKEY080\xfa").startswith(b"VALKEY080\xfe\x00")
    for other in (b"", b"*3\r\n$3\r\nSET", b"redis0010"):
        with pytest.raises(ValueError, match="no RDB file begins with"):
            corrupt.rdb_file({b"k": ABC}, other)


@few
@given(seeds)
def test_damage_behind_the_magic_number_preserves_it(seed: int) -> None:
    content = corrupt.rdb_file({b"key": ABC}, SAVED)
    damaged = corrupt.damaged_file(content, random.Random(seed))
    assert damaged != content or len(damaged) == len(content)
    assert content.startswith(damaged[:9])
    fitting = corrupt.fitting_file(content, random.Random(seed))
    assert fitting == sealed(fitting)
    assert fitting.startswith(content[:9])


def shrunk(stream: Stream, fails: Callable[[Stream], bool], tries: int = 500) -> tuple[Stream, int]:
    shrinker = Shrinker(fails, seconds=30, tries=tries)
    return shrinker.shrink(stream, len(stream) - 1), shrinker.tries


@few
@given(seeds)
def test_shrinking_keeps_only_the_commands_that_matter(seed: int) -> None:
    draw = random.Random(seed)
    noise = [one for _ in range(3) for one in generate.generate(draw)][:60]
    needed = [command("CONFIG", "SET", "needle", 1), command("SETX", "needle", "a" * 100), command("GETX", "needle")]

    def fails(candidate: Stream) -> bool:
        names = [one.name for one in candidate if one.name in {"SETX", "GETX"}]
        settings = any(one.words[2:3] == (b"needle",) for one in candidate)
        return names == ["SETX", "GETX"] and settings

    # In this order, wherever.
    for place, one in zip(sorted(draw.sample(range(len(noise) + 1), 3), reverse=True), reversed(needed), strict=True):
        noise.insert(place, one)
    assert fails(tuple(noise))

    small, tries = shrunk(tuple(noise), fails)
    assert len(small) == 3
    assert max(len(word) for one in small for word in one.words) < 20
    assert tries < 100


def test_shrinking_ends_after_its_attempts_and_the_result_still_fails() -> None:
    stream = tuple(command("ECHO", number) for number in range(64))
    wanted = {stream[place] for place in (3, 17, 40, 60)}

    def fails(candidate: Stream) -> bool:
        return wanted <= set(candidate)

    small, tries = shrunk(stream, fails, tries=10)
    assert tries == 10
    assert wanted <= set(small)
    assert set(shrunk(stream, fails)[0]) == wanted


def old_streams(kept: corpus.Corpus) -> list[Stream]:
    """The streams that the corpus replays from its folder."""
    replayed = []
    while (one := kept.next_old()) is not None:
        replayed.append(one)
    return replayed[len(list(corpus.COMMITTED.glob("*.stream"))) :]


def test_a_stream_is_kept_for_new_features(tmp_path: Path) -> None:
    first, second = from_text("GET k\n"), from_text("GET k\nSET k v\n")
    kept = corpus.Corpus(tmp_path, "one")
    assert kept.offer(first, {"a"})
    assert not kept.offer(second, {"a"})
    assert kept.offer(second, {"a", "b"})
    assert kept.streams == [first, second]
    # On the same build, the features are known without sending anything again.
    again = corpus.Corpus(tmp_path, "one")
    assert (len(again), again.features, old_streams(again)) == (2, 2, [])
    assert not again.offer(from_text("GET other\n"), {"a", "b"})
    # On another build, every stream is tried once.
    other = corpus.Corpus(tmp_path, "another")
    assert (len(other), other.features) == (0, 0)
    assert set(old_streams(other)) == {first, second}
    assert other.offer(first, {"a"})
    later = corpus.Corpus(tmp_path, "another")
    assert (later.streams, old_streams(later)) == ([first], [])
    assert len(list(tmp_path.glob("*.stream"))) == 1, "a stream without new features takes the place of others"


def test_later_features_of_a_stream_are_added_to_its_first_ones(tmp_path: Path) -> None:
    stream = from_text("GET k\n")
    kept = corpus.Corpus(tmp_path, "one")
    assert kept.offer(stream, {"a"})
    # Another server process has already shown the other features.
    assert kept.offer(stream, {"a", "b"})
    assert corpus.Corpus(tmp_path, "one").features == 2


def test_a_stream_that_failed_is_sent_again_by_every_run(tmp_path: Path) -> None:
    stream = from_text("GET k\n")
    corpus.Corpus(tmp_path, "one").save(stream, corpus.FOUND)
    for _ in range(2):
        assert old_streams(corpus.Corpus(tmp_path, "one")) == [stream]


@pytest.mark.parametrize("content", [b"", b"GET \xff\xfe\n", b'GET "k\n'])
def test_a_damaged_stream_is_not_sent_and_fails_no_run(content: bytes, tmp_path: Path) -> None:
    stream = from_text("GET k\n")
    kept = corpus.Corpus(tmp_path, "one")
    kept.offer(stream, {"a"})
    kept.offer(from_text("SET k v\n"), {"b"})
    kept.save(from_text("DEL k\n"), corpus.FOUND)
    for name in (corpus.KEPT, corpus.FOUND):
        damaged = next(path for path in tmp_path.glob(f"{name}*.stream") if path.read_text("utf-8") != "GET k\n")
        damaged.write_bytes(content)
    (tmp_path / "found-0.stream").write_text("GET k\n", "utf-8")
    again = corpus.Corpus(tmp_path, "one")
    assert again.streams == [stream]
    assert old_streams(again) == [stream]


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert corpus.Corpus(None).offer(from_text("GET k"), {1})
    assert list(tmp_path.iterdir()) == []


def test_committed_streams_of_several_clients_wait_while_new_streams_have_one() -> None:
    every = [read_stream(path) for path in sorted(corpus.COMMITTED.glob("*.stream"))]
    kept = corpus.Corpus(None)
    first = [stream for stream in iter(lambda: kept.next_old(alone=True), None) if stream is not None]
    rest = [stream for stream in iter(kept.next_old, None) if stream is not None]
    assert first == [stream for stream in every if clients_of(stream) == 1]
    assert rest == [stream for stream in every if clients_of(stream) > 1]
    assert rest


class _OneKey(NamedTuple):
    """The control connection of a server with one key, which answers TYPE, OBJECT ENCODING and DUMP."""

    kind: bytes
    encoding: bytes
    payload: bytes = b"a payload"

    def ask(self, _: bytes, count: int) -> list[Reply]:
        answers: list[Reply] = [self.kind, self.encoding, self.payload]
        return answers[:count]


@pytest.mark.parametrize(
    ("key", "answers", "names"),
    [
        (b"h", _OneKey(b"hash", b"listpack"), ["OBJECT", "HGETALL", "DUMP", "RESTORE", "HGETALL"]),
        (b"h", _OneKey(b"hash", b"hashtable"), ["OBJECT", "HGETALL", "RESTORE", "HGETALL"]),
        (b"z", _OneKey(b"zset", b"skiplist"), ["OBJECT", "ZRANGE", "RESTORE", "ZRANGE"]),
        (b"x", _OneKey(b"stream", b"stream"), ["OBJECT", "XRANGE", "RESTORE", "XRANGE"]),
        (b"s", _OneKey(b"string", b"raw", bytes(LARGEST_PAYLOAD_BYTES)), ["OBJECT", "GET", "DUMP"]),
        (b"v", _OneKey(b"vectorset", b"hnsw"), ["OBJECT"]),
        (b"i", _OneKey(b"hash", b"listpackex"), ["OBJECT", "HGETALL"]),
    ],
)
def test_every_payload_of_the_native_build_is_restored_unless_chance_or_time_decides(
    key: bytes, answers: _OneKey, names: list[str]
) -> None:
    read = stored(answers, [key])  # type: ignore[arg-type]
    assert [one.name for one in read] == names
    assert all(one.words[3] == answers.payload for one in read if one.name == "RESTORE")


def test_every_committed_stream_can_be_read() -> None:
    paths = sorted(corpus.COMMITTED.glob("*.stream"))
    assert paths
    assert all(len(read_stream(path)) <= mutate.LONGEST for path in paths)


def test_shapes_distinguish_kinds_of_replies_but_not_values() -> None:
    stream = from_text("GET k\n")

    def shape(reply: Reply) -> object:
        return corpus.shapes(stream, [reply])

    assert shape(b"abc") == shape(b"xyz") != shape(b"x" * 100)
    assert shape(1) == shape(100) != shape(-1)
    assert shape(None) != shape(b"") != shape(ReplyError("ERR x"))


def answers(text: str) -> list[object]:
    model = Model()
    return [model.answer(one) for one in from_text(text)]


def test_the_model_answers_strings_counters_and_bits() -> None:
    text = "SET k 10\nINCRBY k 5\nAPPEND k ab\nGET k\nSETRANGE k 6 z\nGETRANGE k 2 -1\nSTRLEN k\n"
    text += "SETBIT n 9 1\nBITCOUNT n\nBITPOS n 1\n"
    assert answers(text) == [b"OK", 15, 4, b"15ab", 7, b"ab\0\0z", 7, 0, 1, 9]
    assert answers("SET a ab\nSET b a\nBITOP AND c a b\nGET c\nGET nothing\n")[2:] == [2, b"a\0", None]


def test_the_model_does_not_predict_unknown_replies() -> None:
    assert answers("SET k ab\nINCR k\nGET k\n") == [b"OK", UNPREDICTED, UNPREDICTED]
    assert answers("SET k 1\nLPUSH k 1\nGET k\n")[2] is UNPREDICTED
    assert answers("SET k 1\nMULTI\nSET k 2\nEXEC\nGET k\n")[1:] == [UNPREDICTED] * 4
    assert answers("SET k 9223372036854775807\nINCR k\n")[1] is UNPREDICTED
    assert answers("SET k 1\nDEL k\nGET k\n")[1:] == [UNPREDICTED, None]
    assert answers("SET k 1\nTYPE k\nGET k\n")[2] == b"1"


COMMAND = [
    [b"get", 2, [], 1, 1, 1],
    [b"del", -2, [], 1, -1, 1],
    [b"xgroup", -2, [], 0, 0, 0, [], [], [], [[b"xgroup|create", -5, [], 2, 2, 1]]],
]


@pytest.mark.parametrize(
    ("content", "lacking"),
    [
        (wire(from_text("GET k\nDEL k\nXGROUP CREATE k g 0")), False),
        (b"REDIS0011\xfe\0\xff12345678" + wire(from_text("GET k")), False),
        (wire(from_text("GET")), True),
        (b"REDIS0011*\xfe\0\xff12345678" + wire(from_text("GET k\ndel")), True),
        (wire(from_text("XGROUP CREATE k g")), True),
        (wire(from_text("XGROUP")), True),
        # The count is wrong, but the command is complete, whatever follows.
        (b"*1\r\n$3\r\nGET\r\n$1\r\nk\r\n" + wire(from_text("GET k")), True),
        (b"*2\r\n$3\r\nGET\r\n", False),
        (wire(from_text("UNKNOWN")), False),
    ],
)
def test_commands_that_lack_words_are_found_in_a_damaged_file(content: bytes, *, lacking: bool) -> None:
    assert corrupt.lacks_words(content, corrupt.arities(COMMAND)) is lacking


def test_too_few_accepted_damaged_inputs_are_reported() -> None:
    taken = Acceptance(["files", "payloads"])
    assert taken.lacking == ["files", "payloads"]
    for _ in range(40):
        taken.count("files", taken=False)
    taken.count("payloads", taken=True)
    assert taken.lacking == ["files"]
    taken.count("files", taken=True)
    assert taken.lacking == []
    assert str(taken) == "1 of 41 damaged files were taken, 1 of 1 damaged payloads were taken"
    for _ in range(60):
        taken.count("files", taken=False)
    assert taken.lacking == ["files"], "one in a hundred is too few"
    assert Acceptance([]).lacking == []


@pytest.mark.parametrize(
    ("result", "has_keys"),
    [("1 keys [(b'k', b'v')]", True), ("12 keys []", True), ("0 keys []", False), (REFUSED, False)],
)
def test_an_accepted_file_counts_only_if_it_has_keys(result: str, *, has_keys: bool) -> None:
    assert (KEYS.match(result) is not None) == has_keys


_IDLE = b"$19\r\nblocked_clients:0\r\n\r\n"


def fuzz_session(tmp_path: Path, *, limit_seconds: float, kept: Path | None = None) -> FuzzSession:
    spec = cells.spec_of("fuzz", tmp_path, fakes.unemulated(Catalog().targets["armv5"]))
    run = CellSession(msgspec.structs.replace(spec, limit_seconds=limit_seconds, corpus=kept))
    run.begin("fuzz/test_streams.py::test_streams")
    return FuzzSession(run, Emptying(), name="streams", share=1.0, learns=kept is not None)


def test_a_session_whose_time_is_over_before_it_begins_runs_one_example(tmp_path: Path) -> None:
    """Regression: reading a large corpus took the whole time of a short run, which then failed without an example."""
    session = fuzz_session(tmp_path, limit_seconds=1e-9)
    assert session.more()
    session.streams = 1
    assert not session.more()


def test_a_session_that_ends_at_many_failures_reports_that_it_did_not_run_the_rest(tmp_path: Path) -> None:
    session = fuzz_session(tmp_path, limit_seconds=60)
    session.streams, session.found = 50, {"difference GET": "GET k: guest b'', native b'v'"}
    for failures, cut_short in ((FAILURES["quick"] - 1, False), (FAILURES["quick"], True)):
        session.failures = failures
        assert session.more() != cut_short
        with pytest.raises(pytest.fail.Exception, match=f"{failures} of 50 examples"):
            session.conclude()
        assert session.run.current.examples_tell
        assert bool(session.run.current.cut_short) == cut_short


def test_a_session_ends_after_two_servers_that_hang_when_they_load_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = fuzz_session(tmp_path, limit_seconds=1000)

    def start(_: StartGuest, target: str = "", **__: object) -> str:
        if target:
            return "the native build, which loads the file"
        raise StartError("hang", NO_PONG)

    monkeypatch.setattr(StartGuest, "__call__", start)
    monkeypatch.setattr(survival, "_contents", lambda _: "1 keys [(b'a', b'1')]")
    for has_ended in (False, True):
        assert session.start_up({"dump.rdb": b"REDIS"}, [])
        assert session.has_enough_failures == has_ended
    assert not session.more()
    with pytest.raises(pytest.fail.Exception, match="2 of 2 examples"):
        session.conclude()
    assert session.run.current.cut_short == "it ended after 2 failed examples, and did not run the others"


def test_a_session_without_time_for_earlier_failures_has_no_verdict_about_them(tmp_path: Path) -> None:
    earlier = corpus.Corpus(tmp_path / "kept", "another build")
    earlier.offer(from_text("SET k v\n"), {1})
    earlier.save(from_text("GET k\n"), corpus.FOUND)
    session = fuzz_session(tmp_path, limit_seconds=60, kept=tmp_path / "kept")
    session.streams = 1
    for _ in corpus.COMMITTED.glob("*.stream"):
        assert session.corpus.next_old()
    session.conclude()
    assert session.run.current.note.endswith(", earlier streams not sent: 1")
    assert session.run.current.cut_short.startswith("streams that failed in earlier runs and were not sent again: 1 ")
    session.run.current.begin("fuzz/test_streams.py::test_streams")
    assert session.corpus.next_old() == from_text("GET k\n")
    session.conclude()
    assert session.run.current.note.endswith(", earlier streams not sent: 1")
    assert not session.run.current.cut_short
    session.corpus.next_old()
    session.conclude()
    assert "not sent" not in session.run.current.note


def _running(tmp_path: Path) -> CellSession:
    """A session whose servers answer every request with OK, in a test of the suite."""
    runner = fakes.unemulated(Catalog().targets["native"])
    build = fakes.build(tmp_path, target="native")
    fakes.write(build.server_binary, fakes.answering_server(), mode=0o755)
    peers = {"native": PeerServer(runner=runner, build=build)}
    spec = cells.spec_of("fuzz", tmp_path, runner)
    run = CellSession(msgspec.structs.replace(spec, build=build, peers=peers))
    run.collected(1)
    run.begin("fuzz/test_streams.py::test_streams")
    return run


def _recorded(run: CellSession, session: FuzzSession, tmp_path: Path) -> list[cell_events.TestEvent]:
    """The results in the evidence after the end of the test, which failed."""
    with pytest.raises(pytest.fail.Exception) as failed:
        session.conclude()
    run.end("failed", str(failed.value), 1.0)
    run.close()
    events = event_log.read_events(tmp_path / event_log.NAME)
    return [one for one in events if isinstance(one, cell_events.TestEvent)]


def test_what_the_native_build_answers_as_well_is_recorded_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: in a tree whose SET had other options, each failure of the model failed the check."""
    run = _running(tmp_path)

    def both_mistaken(
        _: Guest, __: Guest, stream: Stream, *___: object, **____: object
    ) -> tuple[Failure | None, list[Reply]]:
        return mistaken(stream, [b"OK", 9]), [b"OK", 9]

    monkeypatch.setattr("suites.fuzz.session.attempt", both_mistaken)
    session = FuzzSession(run, Emptying(), name="streams", share=1.0)
    session.example(from_text("SET k v\nSTRLEN k\n"))
    recorded = _recorded(run, session, tmp_path)
    assert {(one.name.rpartition("[")[2], one.fails_natively) for one in recorded} == {("STRLEN-model]", True)}


def test_a_stream_during_which_the_native_build_was_killed_from_outside_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: when memory ran out, a stream seemed to kill the native build, and shrinking started another one."""
    run = _running(tmp_path)
    tried = []

    def killed(_: Guest, oracle: Guest, stream: Stream, *__: object, **___: object) -> tuple[Failure, list[Reply]]:
        tried.append(stream)
        oracle.kill()
        return native_gone(stream, 0, ConnectionResetError("closed by the native build")), []

    monkeypatch.setattr("suites.fuzz.session.attempt", killed)
    session = FuzzSession(run, Emptying(), name="streams", share=1.0)
    session.example(from_text("GET k\n"))
    recorded = _recorded(run, session, tmp_path)
    assert len(tried) == 1
    assert [(one.outcome, one.doubt.rpartition(" ")[2]) for one in recorded] == [("failed", "SIGKILL")]


class _Listening(NamedTuple):
    """The part of a server that Emptying uses."""

    folder: Path
    upstream: Path
    deadline_seconds: float = 5.0


@pytest.fixture
def listening() -> Iterator[tuple[_Listening, list[str]]]:
    """A server that replies OK to every command, and the names of the commands since the list was cleared.

    It never has a blocked client.
    """
    received: list[str] = []

    def answer(piece: bytes) -> bytes:
        commands = from_wire(piece)
        received.extend(one.name for one in commands)
        return b"".join(_IDLE if one.name == "INFO" else b"+OK\r\n" for one in commands)

    with RecordedServer(answer) as server:
        yield _Listening(folder=server.path.parent, upstream=server.path), received


def _emptied(emptying: Emptying, server: _Listening, received: list[str]) -> list[str]:
    received.clear()
    emptying.empty(server)  # type: ignore[arg-type]
    return list(received)


def test_a_server_with_unknown_use_is_restored_completely(listening: tuple[_Listening, list[str]]) -> None:
    server, received = listening
    emptying, stream = Emptying(), from_text("SET k config\n")
    assert "CONFIG" in _emptied(emptying, server, received)
    whole = _emptied(emptying, server, received)
    assert {"SLAVEOF", "FLUSHALL", "FUNCTION", "CONFIG", "ACL", "SCRIPT", "INFO"} == set(whole)
    emptying.sent(server, stream)  # type: ignore[arg-type]
    assert _emptied(emptying, server, received) == ["FLUSHALL"]
    assert _emptied(emptying, server, received) == whole
    emptying.sent(server, stream)  # type: ignore[arg-type]
    emptying.forget()
    assert _emptied(emptying, server, received) == whole


def test_a_server_is_asked_for_blocked_clients_only_after_several_clients(
    listening: tuple[_Listening, list[str]],
) -> None:
    server, received = listening
    emptying = Emptying()
    _emptied(emptying, server, received)
    emptying.sent(server, from_text("SET k v\n"))  # type: ignore[arg-type]
    assert _emptied(emptying, server, received) == ["FLUSHALL"]
    emptying.sent(server, from_text("@2 SET k v\n"))  # type: ignore[arg-type]
    assert _emptied(emptying, server, received) == ["FLUSHALL", "INFO"]


def test_a_server_that_may_be_a_replica_is_made_a_primary_before_it_is_emptied(
    listening: tuple[_Listening, list[str]],
) -> None:
    server, received = listening
    emptying = Emptying()
    assert _emptied(emptying, server, received).index("SLAVEOF") < received.index("FLUSHALL")
    emptying.sent(server, from_text("REPLICAOF 127.0.0.1 -1\n"))  # type: ignore[arg-type]
    assert _emptied(emptying, server, received) == ["SLAVEOF", "FLUSHALL"]


@pytest.mark.parametrize(
    ("text", "timed"),
    [
        ("SET k v\nLPOP l\nXREAD STREAMS x 0\nCLIENT ID\n", False),
        ("SET k v\nBLPOP l 0.002\n", True),
        ("xreadgroup GROUP g c block 1 STREAMS x >\n", True),
        ("CLIENT PAUSE 1 WRITE\n", True),
        ("WAIT 1 1\n", True),
    ],
)
def test_a_servers_timer_runs_faster_for_streams_that_wait_for_it_and_slower_after_them(
    listening: tuple[_Listening, list[str]], text: str, *, timed: bool
) -> None:
    server, received = listening
    emptying, stream = Emptying(), from_text(text)
    assert awaits_time(stream) is timed
    emptying.empty(server)  # type: ignore[arg-type]
    assert emptying.restoring(server, stream)[1:] == ((SELDOM,) if timed else ())  # type: ignore[arg-type]
    received.clear()
    emptying.hasten(server)  # type: ignore[arg-type]
    assert received == ["CONFIG"]


def test_a_server_that_keeps_its_keys_is_reported() -> None:
    def refuse(piece: bytes) -> bytes:
        return b"".join(b"-READONLY\r\n" if one.name == "FLUSHALL" else b"+OK\r\n" for one in from_wire(piece))

    with RecordedServer(refuse) as server, pytest.raises(AssertionError, match=r"keeps its keys: .*READONLY"):
        Emptying().empty(_Listening(folder=server.path.parent, upstream=server.path))  # type: ignore[arg-type]


WHOLE = from_text(
    "FLUSHALL\nFUNCTION FLUSH\nCONFIG SET hz 500\nACL DELUSER plumb\nSCRIPT LOAD x\n"
    "CONFIG SET hash-max-ziplist-entries 128\nCONFIG SET hash-max-listpack-entries 128\n"
    "CONFIG SET set-max-intset-entries 9\n"
)
"""The commands that restore a server."""


@pytest.mark.parametrize(
    ("sent", "due"),
    [
        ("SET k hz\nGET k\n", ""),
        ("SET config hz\n", "CONFIG SET hz 500\n"),
        (" config set Hz 10\n", "CONFIG SET hz 500\n"),
        (
            "MULTI\nCONFIG SET hash-max-listpack-entries 1\nEXEC\n",
            "CONFIG SET hash-max-ziplist-entries 128\nCONFIG SET hash-max-listpack-entries 128\n",
        ),
        ("EVAL \"redis.call('acl', 'SETUSER', 'plumb')\" 0\n", "ACL DELUSER plumb\n"),
        ("Script flush\nfunction LOAD x\n", "FUNCTION FLUSH\nSCRIPT LOAD x\n"),
        ("CONFIG GET *\n", ""),
    ],
)
def test_only_settings_that_a_stream_may_have_changed_are_restored(sent: str, due: str) -> None:
    assert undoing(from_text(sent), WHOLE) == from_text(due)


def test_every_change_of_the_grammar_besides_keys_is_restored() -> None:
    drawn = random.Random(5)
    for theme in grammar.grammar().themes:
        for _ in range(40):
            stream = generate.generate(drawn, [theme])
            set_by_it = {
                one.words[2].lower() for one in stream if one.name == "CONFIG" and one.words[1].upper() == b"SET"
            }
            whole = tuple(command("CONFIG", "SET", name, 1) for name in set_by_it) + WHOLE
            restored = undoing(stream, whole)
            assert {one.words[2] for one in restored if one.name == "CONFIG"} >= set_by_it
            due = {"ACL", "SCRIPT", "FUNCTION"} & {one.name for one in stream}
            assert {one.name for one in restored} >= due
