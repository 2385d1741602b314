"""A suite's server module against headers that lack some of what it calls. The machine's own compiler reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.build import server_module
from harness.build.server_module import ModuleMisfitError
from harness.core.cache import Cache
from harness.core.target_model import ORACLE
from harness.plan.catalog import Catalog
from tests.unit.build.test_unit_drivers import tree

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """
#include "redismodule.h"
typedef Ctx Context;
static int *used;
static int helper(void) { return *used; }

static int kept(Context *context, Text **words, int count) {
    return Whole(context, words, count) + RedisModule_ReplyWithError(context, "whole");
}

static int newer(Context *context, Text **words, int count) {
    if (count == NEWEST) return helper();
    return Newest(context, words);
}

static int newer_too(Context *context, Text **words, int count) {
    return Newest(context, words) + count;
}

int on_load(Context *context) { return kept(context, 0, 0) + newer(context, 0, 1) + newer_too(context, 0, 1); }
"""
HEADER = """
typedef struct Ctx Ctx;
typedef struct Text Text;
int Whole(Ctx *context, Text **words, int count);
int RedisModule_ReplyWithError(Ctx *context, const char *text);
"""
NEWEST = "#define NEWEST 3\nint Newest(Ctx *context, Text **words);\n"


def built(tmp_path: Path, module: str, header: str) -> bytes:
    """The module's shared object, compiled for this machine against a tree with that header."""
    source, place = tmp_path / "module.c", tmp_path / "tree" / "src" / "redismodule.h"
    place.parent.mkdir(parents=True)
    source.write_text(module, "utf-8")
    place.write_text(header, "utf-8")
    catalog = Catalog()
    target = catalog.targets[ORACLE]
    of_header, tools = tree(tmp_path / "tree", "redis", 7, 0, 0), catalog.toolchain_of(target)
    return server_module.build_module(Cache(tmp_path / "cache"), source, of_header, target, tools).read_bytes()


def test_a_command_without_its_function_says_so_and_the_others_stay(tmp_path: Path) -> None:
    made = built(tmp_path, MODULE, HEADER)
    assert b"\0LACKS NEWEST Newest\0" in made
    # The compiler reports the function in the second command only when the first one no longer calls it.
    assert b"\0LACKS Newest\0" in made
    assert b"\0whole\0" in made
    assert b"Whole\0" in made


@pytest.mark.parametrize(
    ("old", "new"),
    [("return Newest(context, words);", 'return "text";'), ("kept(context, 0, 0)", "Newest()")],
    ids=["another error", "an error outside of commands"],
)
def test_a_fault_of_the_modules_own_is_not_taken_for_an_older_header(tmp_path: Path, old: str, new: str) -> None:
    module = MODULE.replace("count == NEWEST", "count == 1").replace(old, new)
    with pytest.raises(ModuleMisfitError, match=r"module for native does not compile"):
        built(tmp_path, module, HEADER)


def test_a_module_whose_functions_are_all_there_is_compiled_as_it_is(tmp_path: Path) -> None:
    assert b"LACKS" not in built(tmp_path, MODULE, HEADER + NEWEST)
