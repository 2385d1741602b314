"""The JSON codec reads and writes documents, and several threads may use it at the same time."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

import pytest

from harness.core.processes import process
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 60.0
PROCESSES = 8

ENTERED_AGAIN = """
import threading
import msgspec
from harness.core import json_codec as codec

others = []

class Inner(msgspec.Struct):
    value: "entered_again()"

class Outer(msgspec.Struct):
    number: int
    inner: Inner

def entered_again():
    # msgspec asks for this annotation when it knows of Outer, but not yet what its fields are.
    if not others:
        others.append(threading.Thread(target=read))
        others[0].start()
        others[0].join(0.5)
    return int

def read():
    READ

read()
others[0].join()
"""
"""Always makes a thread read a struct while another one examines its type."""

SWITCHED_QUICKLY = """
import sys
import threading
import msgspec
from harness.core import json_codec as codec

sys.setswitchinterval(1e-6)
for _ in range(10):
    Outer = msgspec.defstruct("Leaf", [("number", int)])
    plain = {"number": 1}
    for level in range(30):
        Outer = msgspec.defstruct(f"Level{level}", [("number", int), ("inner", Outer)])
        plain = {"number": 1, "inner": plain}
    text = codec.encode(plain)
    together = threading.Barrier(8)

    def read():
        together.wait()
        READ

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
READS = {
    "entered again": {
        "decode": """codec.decode(b'{"number": 1, "inner": {"value": 2}}', Outer)""",
        "convert": """codec.convert({"number": 1, "inner": {"value": 2}}, Outer)""",
    },
    "switched quickly": {"decode": "codec.decode(text, Outer)", "convert": "codec.convert(plain, Outer)"},
}


@pytest.mark.parametrize("how", ["decode", "convert"])
def test_a_thread_waits_while_another_examines_a_struct(how: str) -> None:
    ended = process.run(
        [sys.executable, "-c", ENTERED_AGAIN.replace("READ", READS["entered again"][how])],
        deadline_seconds=SECONDS,
        folder=ROOT,
    )
    assert (ended.code, ended.text) == (0, "")


@pytest.mark.parametrize("how", ["decode", "convert"])
def test_threads_may_read_a_new_struct_at_the_same_time(how: str) -> None:
    program = SWITCHED_QUICKLY.replace("READ", READS["switched quickly"][how])
    for _ in range(PROCESSES):
        ended = process.run([sys.executable, "-c", program], deadline_seconds=SECONDS, folder=ROOT)
        assert (ended.code, ended.text) == (0, "")


DECODERS = {"convert", "Decoder", "decode", "from_builtins"}


def decoding_calls(path: Path) -> Iterator[str]:
    """The places at which a file calls msgspec's own decoding. A file without these words is not parsed."""
    text = path.read_text("utf-8")
    if "msgspec" not in text or ("from msgspec" not in text and not any(name in text for name in DECODERS)):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in DECODERS and ast.unparse(node).startswith("msgspec."):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("msgspec"):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: from {node.module} import …"


def test_only_the_codec_decodes() -> None:
    files = [path for folder in ("harness", "suites", "tests", "ci") for path in (ROOT / folder).rglob("*.py")]
    found = [call for path in files for call in decoding_calls(path)]
    assert found, "the codec's own decoding was not found"
    assert {call.partition(":")[0] for call in found} == {"harness/core/json_codec.py"}, found
