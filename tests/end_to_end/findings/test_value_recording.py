"""What functions of a server are given and return is the same on a strict or big-endian target and natively."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from harness.analysis.values.comparison import compare
from harness.analysis.values.moments import Moment, read_moments
from harness.core.errors import InconclusiveError
from harness.core.target_model import ORACLE
from harness.protocol.resp import Client
from harness.run import recorded_values
from harness.run.recorded_values import RecordedFunction, RecordedGuest
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.target_setup import set_up_target
from tests.end_to_end.support.machines import quiet_workbench

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

FUNCTIONS = [
    RecordedFunction("redisPopcount", "bitops.c"),
    RecordedFunction("createDumpPayload", "cluster.c"),
    RecordedFunction("crc64", ""),
    RecordedFunction("lpAppendInteger", "listpack.c"),
    RecordedFunction("noSuchFunction", ""),
    RecordedFunction("dumpCommand", "cluster.c"),
    RecordedFunction("siphash", "siphash.c"),
    RecordedFunction("sdscatfmt", "sds.c"),
    RecordedFunction("sdsfree", "sds.c"),
    RecordedFunction("sdsempty", "sds.c"),
    RecordedFunction("ld2string", "util.c"),
    RecordedFunction("lookupKeyRead", "", always=False),
    RecordedFunction("serverCron", "", always=False),
]


def recorded(target: str, folder: Path, options: tuple[str, ...] = (), *, is_cut: bool = False) -> list[Moment]:
    bench = quiet_workbench()
    setup = set_up_target(bench, bench.catalog.targets[target])
    tree = bench.open_server("redis-7.0.15")
    folder.mkdir()
    guest = RecordedGuest(
        ServerSpec(build=setup.build(tree, "O2"), version=tree.version, options=options),
        setup.runner("signal"),
        folder / "guest",
        functions=FUNCTIONS,
        sockets=folder,
    )
    with guest, Client.at_socket(guest.upstream, deadline_seconds=guest.deadline_seconds) as client:
        client.command("SET", "before", "1")
        client.command("DUMP", "before")
        client.command("ECHO", "begin")
        client.command("SET", "k", "hello")
        assert client.command("BITCOUNT", "k") == 21
        client.command("DUMP", "k")
        client.command("XADD", "stream", "1-1", "field", "7")
        client.command("INCRBYFLOAT", "fraction", "1.5")
        # The server's timer runs ten times a second.
        time.sleep(0.5)
    assert guest.cut.exists() == is_cut
    return read_moments(guest.values)


@pytest.mark.slow(
    instead="tests/unit/analysis/test_value_comparison.py; test_a_server_runs_on_when_the_time_for_recording_is_over"
)
def test_values_are_recorded_by_their_names_and_agree(tmp_path: Path) -> None:
    native, again, target = (
        recorded(name, tmp_path / f"{number}") for number, name in enumerate((ORACLE, ORACLE, "sparc64"))
    )
    whole_native, whole_again, whole_target = list(native), list(again), list(target)
    for moments in (native, target):
        served = [one for one in moments if one.function == "lookupKeyRead" and one.kind == "entry"]
        assert len(served) == 1, "DUMP reads"
        assert all(one.function != "serverCron" for one in moments), "no command calls it"
        appended = [one for one in moments if (one.function, one.kind) == ("lpAppendInteger", "return")]
        assert appended, "XADD appends"
        names = {value.name for one in appended for value in one.values}
        assert names == {"result"}, "the integer `lval` is no length of `lp`, which has moved by now"
        values = {(one.function, one.kind): {value.name: value for value in one.values} for one in reversed(moments)}
        assert ("dumpCommand", "return") in values, "it calls functions that call others"
        assert values["siphash", "return"]["result"].kind == "number"
        variable = values["sdscatfmt", "entry"]["..."]
        assert variable.kind == "variable"
        assert str(values["sdscatfmt", "entry"]["fmt"]) == "fmt -> '%U-%U'", "a text without a length"
        assert str(values["sdsempty", "return"]["result"]) == "result -> ''", "the type's name says that it is a string"
        written = bytes.fromhex(str(values["ld2string", "return"]["buf"].value))
        assert written.startswith(b"1.5\0"), written
        assert len(written) < 24, "its buffer has 5 KiB, most of which was never written"
        assert values["sdsfree", "return"] == {}, "what it freed is not read"
        moments[:] = [one for one in moments if one.function in {"redisPopcount", "createDumpPayload"}]
        assert [(one.function, one.kind) for one in moments] == [
            ("redisPopcount", "entry"),
            ("redisPopcount", "return"),
            ("createDumpPayload", "entry"),
            ("createDumpPayload", "return"),
        ]
        entry, left = moments[:2]
        assert [str(one) for one in entry.values] == ["s = somewhere", "count = 5"], "it may write there"
        assert [str(one) for one in left.values] == ["result = 21", "s -> 'hello'"]
        assert [one.place and (one.place[0], one.place[1].rpartition("/tree/")[2]) for one in (entry, left)] == [
            ("bitcountCommand", "src/bitops.c"),
            ("redisPopcount", "src/bitops.c"),
        ], "the call, and the definition"
        assert all(one.place and one.place[2] > 0 for one in moments), "in a line"
        assert "o -> 'hello'" in [str(one) for one in moments[2].values], "what the object contains"
    assert compare(target, native, again, name="sparc64") is None
    hashes = [
        [value.value for one in moments if (one.function, one.kind) == ("siphash", "return") for value in one.values]
        for moments in (whole_native, whole_again, whole_target)
    ]
    assert hashes[0] == hashes[1], "the seed is always the same"
    # siphash() stores the result as little-endian bytes and returns them as a number.
    assert hashes[0] == [int.from_bytes(int(one).to_bytes(8, "little"), "big") for one in hashes[2]]


def test_a_server_that_does_not_start_under_gdb_is_told_with_both_logs(tmp_path: Path) -> None:
    with pytest.raises(InconclusiveError, match="no values to compare") as caught:
        recorded(ORACLE, tmp_path / "native", options=("--no-such-setting", "1"))
    assert "the server did not start" in caught.value.because
    assert "Bad directive" in caught.value.because, "the server's words"
    assert "exited with code 01" in caught.value.because, "gdb's words"


def test_a_server_runs_on_when_the_time_for_recording_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_values, "RECORD_SECONDS", 0.0)
    for target in (ORACLE, "sparc64"):
        assert recorded(target, tmp_path / target, is_cut=True) == []
