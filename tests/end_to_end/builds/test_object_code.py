"""The differences between the objects of two builds, for each compiler: a function, its inlined copies, or data."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec
import pytest
from elftools.elf.elffile import ELFFile

from harness.analysis.code.code_map import CodeChange, CodeMap, altered_objects, differences, read_objects
from harness.build import toolchain
from harness.core.processes import process
from harness.core.target_model import ORACLE
from harness.workflows.git.checkout import ReplacedLines
from harness.workflows.preparation.reach import unmoved_lines
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[str, str, str], CodeChange]

pytestmark = pytest.mark.end_to_end

SOURCE = r"""
#include <stdio.h>
struct pair { int one, two; };
int counter;
static const int squares[] = {0, 1, 4, 9};
const char *names[] = {"first", "second"};

static inline __attribute__((always_inline)) int doubled(int n) { return 2 * n + 1; }

__attribute__((noinline)) int alone(int n) { return n * 3; }

__attribute__((noinline)) int caller(int n) { return doubled(n) + squares[n & 3]; }

__attribute__((noinline)) int other(struct pair *pair) { return pair->two; }

__attribute__((noinline)) void tells(int n) { printf("counted %d %s\n", n, names[n & 1]); }

__attribute__((noinline)) int chooses(int n)
{
    switch (n) {
    case 0: return alone(7);
    case 1: return caller(8);
    case 2: return other(NULL);
    case 3: tells(4); return 1;
    case 4: return counter;
    case 5: return alone(n) + 5;
    case 6: counter += 9; return 6;
    case 7: return caller(70);
    default: return 0;
    }
}
"""
CATALOG = machines.CATALOG
EVERYWHERE = [ORACLE, *machines.TESTED]


@cache
def compiler_of(target: str) -> str:
    return str(toolchain.tool(machines.toolchain_of(target), "gcc"))


def objects(target: str, folder: Path, source: str, *more: str) -> CodeMap | None:
    """The code of one object, compiled as a server's are."""
    folder.mkdir(exist_ok=True)
    (folder / "some.c").write_text(source, "utf-8")
    flags = [*toolchain.compiler_flags(CATALOG.targets[target], "O2"), "-g", *more]
    result = process.run(
        [compiler_of(target), *flags, "-c", "some.c", "-o", "some.o"], deadline_seconds=600, folder=folder
    )
    assert result.code == 0, result.text
    return read_objects(folder, ["ld", "some.o"])


@pytest.fixture(scope="module")
def unedited(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CodeMap | None]:
    """The code of the source as it is, for a target."""
    return cache(lambda target: objects(target, tmp_path_factory.mktemp(target), SOURCE))


@pytest.fixture
def change(tmp_path: Path, unedited: Callable[[str], CodeMap | None]) -> Change:
    """Returns the differences that an edit of the source makes."""

    def compare(target: str, anchor: str, replacement: str) -> CodeChange:
        assert SOURCE.count(anchor) == 1
        old = unedited(target)
        new = objects(target, tmp_path, SOURCE.replace(anchor, replacement))
        assert old is not None
        assert new is not None
        return differences(old, new)

    return compare


@pytest.fixture(params=EVERYWHERE)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


STRINGS = (
    'const char *one(void) { return "a first string, not short"; }\n',
    'const char *other(void) { return "and another one"; }\n',
    'const char *const names[] = {"a third string", "a fourth, also longer", ""};\n',
    'static const char *own[] = {"a fifth", "a sixth string"};\nconst char *of(int n) { return own[n]; }\n',
)


def test_strings_in_another_order_make_no_difference(target: str, tmp_path: Path) -> None:
    """The order in which a compiler writes them follows from the order in which it generates the code."""
    one, other, *data = STRINGS
    old = objects(target, tmp_path / "old", "".join(STRINGS))
    new = objects(target, tmp_path / "new", "".join([other, one, *data]))
    assert old is not None
    assert new is not None
    assert old.objects["some.o"].functions.keys() >= {"one", "other", "of"}
    assert old.objects["some.o"].sha256 != new.objects["some.o"].sha256
    assert differences(old, new) == CodeChange(functions=frozenset(), elsewhere=[])


def test_another_string_counts_for_the_function_that_refers_to_it(target: str, tmp_path: Path) -> None:
    old = objects(target, tmp_path / "old", "".join(STRINGS))
    new = objects(target, tmp_path / "new", "".join(STRINGS).replace("another one", "another two"))
    assert old is not None
    assert new is not None
    found = differences(old, new)
    assert found.elsewhere == ["some.o"]
    assert "other" in found.functions
    assert "one" not in found.functions
    pointed = objects(target, tmp_path / "pointed", "".join(STRINGS).replace("a fourth, also", "a fourth, even"))
    assert pointed is not None
    assert differences(old, pointed).elsewhere == ["some.o"]


def test_exchanged_strings_count_for_the_functions_that_refer_to_them(target: str, tmp_path: Path) -> None:
    """The same strings are in the same places: only what refers to them differs."""
    old = objects(target, tmp_path / "old", "".join(STRINGS))
    one, other = (text.partition('"')[2].partition('"')[0] for text in STRINGS[:2])
    exchanged = "".join(STRINGS).replace(one, "?").replace(other, one).replace("?", other)
    new = objects(target, tmp_path / "new", exchanged)
    assert old is not None
    assert new is not None
    assert differences(old, new) == CodeChange(functions=frozenset({"one", "other"}), elsewhere=[])


def test_an_edited_function_differs(target: str, change: Change) -> None:
    found = change(target, "return n * 3", "return n * 5 + 1")
    assert "alone" in found.functions
    assert "main" not in found.functions
    assert found.elsewhere == []
    # Callers may differ in the distance to the function or in their jump tables. All other functions must not differ.
    assert "other" not in found.functions or "chooses" in found.functions


@pytest.mark.parametrize("more", range(1, 17))
def test_padding_behind_a_function_makes_no_function_differ(change: Change, more: int) -> None:
    """On x86 the padding consists of instructions whose length depends on the space."""
    found = change(ORACLE, "return n * 3;", f'__asm__ volatile (".skip {more}, 0x90"); return n * 3;')
    assert "alone" in found.functions
    # Other functions may differ in the distance to their jump targets.
    assert found.functions.isdisjoint({"other", "tells"}), more


def test_a_function_differs_with_an_inline_function_that_it_contains(target: str, change: Change) -> None:
    found = change(target, "2 * n + 1", "2 * n - 1")
    assert "caller" in found.functions


def test_a_layout_differs_in_the_functions_that_use_it(target: str, change: Change) -> None:
    found = change(target, "int one, two;", "int one, more, two;")
    assert "other" in found.functions
    assert found.elsewhere == []


def test_a_removed_function_differs(target: str, change: Change) -> None:
    found = change(target, "__attribute__((noinline)) int other(", "#define other(p) 3\nint gone(")
    assert "other" in found.functions


def test_a_changed_jump_table_counts_for_the_function_that_jumps(target: str, change: Change) -> None:
    cases = "    case 0: return alone(7);\n    case 1: return caller(8);\n"
    swapped = "    case 1: return alone(7);\n    case 0: return caller(8);\n"
    assert "chooses" in change(target, cases, swapped).functions


def test_a_changed_table_between_functions_counts_for_each_that_may_use_it(tmp_path: Path) -> None:
    """Compilers for some machines place jump tables there, where only a distance connects a table with its function."""
    function = ".type {0}, @function\\n{0}: lea table(%rip), %rax\\nret\\n.size {0}, .-{0}\\n"
    text = f'__asm__(".text\\n{function.format("one")}{function.format("two")}table: .long 1, 2, 3\\n");\n'
    old = objects(ORACLE, tmp_path, text)
    new = objects(ORACLE, tmp_path, text.replace("1, 2, 3", "1, 4, 3"))
    assert old is not None
    assert new is not None
    assert differences(old, new) == CodeChange(functions=frozenset(["one", "two"]), elsewhere=[])


SWITCHES = """
int one(int); int two(int); int three(int);
int before(int n) { return one(n) + 1; }
int first(int n)
{
    switch (n) {
    case 0: return one(4); case 1: return two(5); case 2: return three(7) + 1;
    case 3: return one(n) - 8; case 4: return two(n) * 3; case 5: return three(3); default: return 0;
    }
}
int second(int n)
{
    switch (n) {
    case 0: return three(1); case 1: return one(2) + 2; case 2: return two(9);
    case 3: return one(n) - 5; case 4: return two(n) * 7; case 5: return three(6); default: return 1;
    }
}
"""


@pytest.mark.parametrize("target", ["sparc32plus", "sparc64"])
@pytest.mark.parametrize(
    ("function", "anchor", "replacement"),
    [
        ("first", "case 0: return one(4)", "case 0: if (two(n)) return 9; return one(4)"),
        ("first", "case 0: return one(4); case 1: return two(5)", "case 1: return one(4); case 0: return two(5)"),
        ("second", "case 0: return three(1); case 1: return one(2)", "case 1: return three(1); case 0: return one(2)"),
        ("second", "case 5: return three(6);", "case 5: return three(6); case 6: return three(8);"),
        ("before", "one(n) + 1", "one(n) + one(n + 9) + 1"),
    ],
)
def test_a_table_among_instructions_belongs_to_its_function(
    tmp_path: Path, target: str, function: str, anchor: str, replacement: str
) -> None:
    assert SWITCHES.count(anchor) == 1
    old = objects(target, tmp_path, SWITCHES)
    new = objects(target, tmp_path, SWITCHES.replace(anchor, replacement))
    assert old is not None
    assert new is not None
    assert differences(old, new) == CodeChange(functions=frozenset([function]), elsewhere=[])


NUMBERS = "int number(int n) { static const int numbers[] = {1, 4, 9, 25}; return numbers[n & 3]; }\n"


@pytest.mark.parametrize(
    ("differing", "anchor", "replacement"),
    [
        ({"before"}, "one(n) + 1", "one(n) + one(n + 9) * two(n + 7) + 1"),
        ({"first"}, "case 0: return one(4)", "case 0: if (two(n)) return 9; return one(4)"),
        ({"first"}, "case 0: return one(4); case 1: return two(5)", "case 1: return one(4); case 0: return two(5)"),
    ],
    ids=["a function in front", "the function", "its table alone"],
)
def test_a_table_among_constants_counts_for_the_function_that_jumps(
    tmp_path: Path, differing: set[str], anchor: str, replacement: str
) -> None:
    """Each change of a function moves the other functions of the file, and so changes the distances in their tables."""
    text = f"{NUMBERS}{SWITCHES}"
    assert text.count(anchor) == 1
    old = objects(ORACLE, tmp_path, text, "-fno-tree-switch-conversion")
    new = objects(ORACLE, tmp_path, text.replace(anchor, replacement), "-fno-tree-switch-conversion")
    assert old is not None
    assert new is not None
    assert differences(old, new) == CodeChange(functions=frozenset(differing), elsewhere=[])


def test_an_entry_of_a_table_among_constants_counts_for_its_function(tmp_path: Path) -> None:
    """Compilers change the code as well, so that the entries are exchanged in the object itself."""
    text = f"{NUMBERS}{SWITCHES}"
    old = objects(ORACLE, tmp_path, text, "-fno-tree-switch-conversion")
    assert old is not None
    path = tmp_path / "some.o"
    with path.open("rb") as stream:
        entries = ELFFile(stream).get_section_by_name(".rela.rodata")
        assert entries is not None
        start, size = int(entries["sh_offset"]), int(entries["sh_entsize"])
    content = bytearray(path.read_bytes())
    # Elf64_Rela ends with the addend. Two neighbours that are relative to one place differ by 4 bytes.
    first, second = (int.from_bytes(content[at + 16 : at + 24], "little") for at in (start, start + size))
    assert first != second - 4
    content[start + 16 : start + 24] = (second - 4).to_bytes(8, "little")
    content[start + size + 16 : start + size + 24] = (first + 4).to_bytes(8, "little")
    path.write_bytes(content)
    new = read_objects(tmp_path, old.link)
    assert new is not None
    assert differences(old, new) == CodeChange(functions=frozenset(["first"]), elsewhere=[])


def test_an_entry_of_a_table_among_instructions_counts_for_its_function(tmp_path: Path) -> None:
    """Compilers change the code as well, so that the entries are exchanged in the object itself."""
    old = objects("sparc64", tmp_path, SWITCHES)
    assert old is not None
    path = tmp_path / "some.o"
    with path.open("rb") as stream:
        text = ELFFile(stream).get_section_by_name(".text")
        assert text is not None
        start = int(text["sh_offset"])
    content = bytearray(path.read_bytes())
    one, two = content[start : start + 4], content[start + 4 : start + 8]
    assert one != two
    content[start : start + 8] = two + one
    path.write_bytes(content)
    new = read_objects(tmp_path, old.link)
    assert new is not None
    assert differences(old, new) == CodeChange(functions=frozenset(["first"]), elsewhere=[])


@pytest.mark.parametrize(
    ("words", "others"),
    [
        (".long 1, 2, 3", ".long 1, 2, 5"),
        ("retl; restore", "retl; nop"),
        ("words: .long 8, 12, 16", "words: .long 8, 12, 20"),
    ],
    ids=["words", "instructions", "a local symbol"],
)
@pytest.mark.parametrize("order", ["-ftoplevel-reorder", "-fno-toplevel-reorder"], ids=["behind", "before"])
def test_data_among_tables_that_no_function_owns_counts_for_each_function(
    tmp_path: Path, words: str, others: str, order: str
) -> None:
    text = f'__asm__(".text\\n{words}\\n");\n{SWITCHES}'
    old = objects("sparc64", tmp_path, text, order)
    new = objects("sparc64", tmp_path, text.replace(words, others), order)
    assert old is not None
    assert new is not None
    assert differences(old, new) == CodeChange(functions=frozenset(["before", "first", "second"]), elsewhere=[])


def test_data_in_front_of_the_first_table_counts_for_each_function(tmp_path: Path) -> None:
    lines = [
        ".text",
        ".long 5",
        ".Ltable: .long .Lone-.Ltable, .Ltwo-.Ltable",
        ".globl jumps",
        ".type jumps, @function",
        "jumps: sethi %hi(_GLOBAL_OFFSET_TABLE_-(.Ltable-.)), %g1",
        ".Lone: or %g1, %lo(_GLOBAL_OFFSET_TABLE_-(.Ltable-.)), %g1",
        ".Ltwo: retl",
        "nop",
        ".size jumps, .-jumps",
    ]
    text = "\n".join(f'__asm__("{line}");' for line in lines) + "\n"
    owned = text.replace('__asm__(".long 5");\n', "")
    moved = owned.replace('__asm__(".text");', '__asm__(".text");\n__asm__(".skip 64");')
    old, new, without, behind = (
        objects("sparc64", tmp_path, each, "-fno-toplevel-reorder")
        for each in (text, text.replace(".long 5", ".long 6"), owned, moved)
    )
    assert old is not None
    assert new is not None
    assert without is not None
    assert behind is not None
    assert differences(old, new) == CodeChange(functions=frozenset(["jumps"]), elsewhere=[])
    assert without.objects["some.o"].functions != old.objects["some.o"].functions
    assert differences(without, behind).functions == {"jumps"}, "the space in front belongs to no function either"


def test_an_assembly_symbol_visible_to_other_objects_is_data(tmp_path: Path) -> None:
    text = '__asm__(".text\\n.globl table\\ntable: .long 1, 2, 3\\n");\n'
    old = objects(ORACLE, tmp_path, text)
    new = objects(ORACLE, tmp_path, text.replace("1, 2, 3", "1, 4, 3"))
    assert old is not None
    assert new is not None
    assert differences(old, new) == CodeChange(functions=frozenset(), elsewhere=["some.o"])


def test_additional_constants_may_move_those_of_other_objects(tmp_path: Path) -> None:
    tables = []
    for cases in (8, 24):
        calls = [f"case {number}: return call({number * 7 % 5});" for number in range(cases)]
        text = f"int call(int); int some(int n) {{ switch (n) {{ {' '.join(calls)} }} return 0; }}\n"
        tables.append(objects(ORACLE, tmp_path, text, "-fno-tree-switch-conversion"))
    old, new = tables
    assert old is not None
    assert new is not None
    assert differences(old, new) == CodeChange(functions=frozenset(["some"]), elsewhere=["some.o"])


def test_a_text_of_the_same_length_is_data_although_no_table_has_it(tmp_path: Path) -> None:
    text = 'int puts(const char *);\nvoid tells(void) { puts("some text"); }\n'
    old = objects(ORACLE, tmp_path / "old", text)
    new = objects(ORACLE, tmp_path / "new", text.replace("some", "more"))
    assert old is not None
    assert new is not None
    assert differences(old, new) == CodeChange(functions=frozenset(["tells"]), elsewhere=["some.o"])


@pytest.mark.parametrize(
    ("anchor", "replacement"),
    [
        ("{0, 1, 4, 9}", "{0, 1, 4, 8}"),
        ("int counter;", "int counter; int another;"),
        ("int counter;", "int counter = 5;"),
        ('"counted %d %s\\n"', '"Counted %d %s\\n"'),
        ('"second"', '"2nd"'),
        ("int counter;", "long long counter;"),
    ],
)
def test_changed_data_belong_to_no_function(target: str, change: Change, anchor: str, replacement: str) -> None:
    assert change(target, anchor, replacement).elsewhere == ["some.o"]


def test_an_additional_line_makes_no_difference(target: str, change: Change) -> None:
    assert change(target, "int counter;", "\n/* A comment. */\nint counter;") == CodeChange(
        functions=frozenset(), elsewhere=[]
    )


def test_an_object_or_a_link_that_differs_is_reported(tmp_path: Path) -> None:
    old = objects("armv5", tmp_path / "old", SOURCE)
    assert old is not None
    none = msgspec.structs.replace(old, objects={})
    assert differences(old, none).elsewhere == ["some.o"]
    assert differences(none, old).elsewhere == ["some.o"]
    assert differences(old, msgspec.structs.replace(old, link=[*old.link, "-lm"])).elsewhere == ["the link"]


def test_equal_objects_are_not_read_again_unless_another_release_read_them(tmp_path: Path) -> None:
    old = objects("armv5", tmp_path, SOURCE)
    assert old is not None
    (name,) = old.objects
    marked = msgspec.structs.replace(old, objects={name: msgspec.structs.replace(old.objects[name], data="seen")})
    again = read_objects(tmp_path, old.link, marked)
    assert again is not None
    assert again.objects[name].data == "seen"
    assert read_objects(tmp_path, old.link, msgspec.structs.replace(marked, recipe="another")) == old


def test_code_that_the_linker_generates_is_unknown(tmp_path: Path) -> None:
    assert objects("native", tmp_path, SOURCE, "-flto", "-fno-fat-lto-objects") is None
    (tmp_path / "some.o").write_bytes(b"no object")
    assert read_objects(tmp_path, []) is None


def compared(target: str, folder: Path, before: str, after: str, *more: str) -> CodeChange:
    """The differences between the objects of two sources."""
    old, new = (objects(target, folder / name, text, *more) for name, text in (("old", before), ("new", after)))
    assert old is not None
    assert new is not None
    return differences(old, new)


def test_a_function_that_replaces_one_of_a_library_is_reported(target: str, tmp_path: Path) -> None:
    """The code of its callers is the same, whether the function is in this object or in another one."""
    text = "int abs_of(int); int calls(int n) { return abs_of(n) + 1; } int other(int n) { return n * 3; }"
    own = f"{text} __attribute__((noinline)) int abs_of(int n) {{ return n * n; }}"
    local = f"static {own.replace('int abs_of(int);', '__attribute__((noinline)) int abs_of(int);', 1)}"
    found = compared(target, tmp_path, text, own)
    assert found.elsewhere == ["abs_of"]
    found = compared(target, tmp_path, local, own)
    assert found.elsewhere in ([], ["abs_of"])
    assert "abs_of" in found.functions


def test_a_function_that_replaces_a_weak_one_differs(target: str, tmp_path: Path) -> None:
    weak = objects(target, tmp_path / "weak", "__attribute__((weak)) int some(int n) { return n; }")
    before = objects(target, tmp_path / "before", "int other(int n) { return n; }")
    after = objects(target, tmp_path / "after", "int other(int n) { return n; } int some(int n) { return n + 1; }")
    assert weak is not None
    assert before is not None
    assert after is not None

    def linked(other: CodeMap) -> CodeMap:
        return CodeMap(
            objects={"weak.o": weak.objects["some.o"], "other.o": other.objects["some.o"]}, link=[], recipe=""
        )

    found = differences(linked(before), linked(after))
    assert "some" in found.functions
    assert found.elsewhere == []
    strong = objects(target, tmp_path / "strong", "int some(int n) { return n; }")
    assert strong is not None
    assert differences(weak, strong).functions == {"some"}


def test_functions_that_swap_places_change_their_callers_by_distance(target: str, tmp_path: Path) -> None:
    """The assembler may write only the distance of a local function into its caller."""
    one = "__attribute__((noinline, noclone)) static int one(int n) { return n * n + 3; }"
    two = "__attribute__((noinline, noclone)) static int two(int n) { return n * n + 5; }"
    caller = "int caller(int n) {{ return {}(n) + 1; }} int keeps(int n) {{ return one(n) ^ two(n + 1); }}"
    flags = ("-fno-toplevel-reorder", "-fno-ipa-ra", "-fno-ipa-icf")
    before, after = f"{one} {two} {caller.format('one')}", f"{two} {one} {caller.format('two')}"
    assert "caller" in compared(target, tmp_path, before, after, *flags).functions


APART = r"""
static __attribute__((noinline)) int near(int n) { return n * 3 + (n >> 2); }
static __attribute__((noinline)) int twin(int n) { return n * 3 + (n >> 2) + 1; }
/* So far away that no instruction changes its length with the distance. */
__attribute__((noinline)) int far(int n) { __asm__ volatile(".skip 4096"); return n; }
__attribute__((noinline)) int grows(int n) { return n * 5; }
__attribute__((noinline)) int caller(int n) { return near(n) + 1; }
__attribute__((noinline)) int last(int n) { return near(n + 2); }
__attribute__((noinline)) int may(int n) { return n > 3 ? near(n - 1) : n; }
int (*addressed(void))(int) { return near; }
int chooses(int n) {
    int r = 0;
    switch (n) {
    case 0: r = near(7); break; case 1: r = twin(8); break; case 2: r = grows(3); break; case 3: r = last(4); break;
    case 4: r = caller(9); break; case 5: r = near(5) + 5; break; case 6: r = may(6) * n; break;
    }
    __asm__ volatile(".skip 128");
    return r;
}
int chooses_again(int n) {
    int r = 1;
    switch (n) {
    case 0: r = near(1); break; case 1: r = twin(2); break; case 2: r = grows(n); break; case 3: r = last(9); break;
    case 4: r = caller(n); break; case 5: r = near(n) * 5; break; case 6: r = may(5) - n; break;
    }
    __asm__ volatile(".skip 128");
    return r;
}
"""
"""Functions that refer to a local one: by a call, a jump in place of a return, a conditional one, and its address."""


def test_a_reference_to_a_local_function_does_not_change_when_a_function_between_them_grows(
    target: str, tmp_path: Path
) -> None:
    """Its distance is in the instruction, or in a constant behind the code."""
    old = objects(target, tmp_path / "old", APART)
    new = objects(target, tmp_path / "new", APART.replace("n * 5;", "n * 5 + (n > 5 ? n % 11 : n / 7) + n * n;"))
    assert old is not None
    assert new is not None
    assert differences(old, new) == CodeChange(functions=frozenset({"grows"}), elsewhere=[])


@pytest.mark.parametrize(
    ("function", "edit"),
    [
        ("caller", ("near(n) + 1", "twin(n) + 1")),
        ("last", ("near(n + 2)", "twin(n + 2)")),
        ("may", ("near(n - 1)", "twin(n - 1)")),
        ("addressed", ("return near;", "return twin;")),
        ("chooses_again", ("case 5: r = near(n) * 5", "case 5: r = twin(n) * 5")),
    ],
)
def test_a_reference_to_another_local_function_changes_what_refers_to_it(
    target: str, tmp_path: Path, function: str, edit: tuple[str, str]
) -> None:
    old = objects(target, tmp_path / "old", APART)
    new = objects(target, tmp_path / "new", APART.replace(*edit))
    assert old is not None
    assert new is not None
    assert function in differences(old, new).functions


def beside_data(last: tuple[int, int]) -> str:
    """A table of 64 jumps in front of an array that another function reads from its end. `last`: the ways that the
    table's last jumps take.
    """
    ways = ["one(n)", "two(n) * m", "two(3) - m", "one(m) ^ two(m)", "two(m) | one(5)", "one(m) & 7", "two(m) + 77"]
    taken = [*((number * 5 + number // 7) % 7 for number in range(62)), *last]
    cases = "".join(
        "".join(f"case {number}: " for number, way in enumerate(taken) if way == each) + f"return {text};\n"
        for each, text in enumerate(ways)
    )
    longer = "".join(f"s += two(s + {number}) * one(s - {number});" for number in range(12))
    return (
        f"int one(int); int two(int);\nint jumps(int n, int m) {{ switch (n) {{\n{cases}default: return 0; }} }}\n"
        "static const int data[7] = {3, 1, 4, 1, 5, 9, 2};\n"
        f"int reads(int s, long n) {{ for (int i = 0; i < (int)n; i++) s += one(s * 31 + data[n - 1 - i]); {longer}"
        "return s; }\n"
    )


def test_a_jump_counts_for_its_function_although_another_one_refers_to_its_place(tmp_path: Path) -> None:
    """An array behind a table may be read from an address in front of it. There the table does not begin."""
    old = objects(ORACLE, tmp_path / "old", beside_data((3, 4)))
    new = objects(ORACLE, tmp_path / "new", beside_data((4, 3)))
    assert old is not None
    assert new is not None
    assert "jumps" in differences(old, new).functions


NO_JUMP = """
struct wide { char filling[112]; char field; };
void stores(struct wide *one) { one->field = VALUE; }
int grows(int n) { return GROWN; }
int behind(int n) { return n; }
"""


def test_a_value_that_looks_like_a_jump_to_a_function_that_has_moved_counts(tmp_path: Path) -> None:
    """`behind` moves by as many bytes as the value grows, and the field's offset is the code of a short jump."""
    old = objects(ORACLE, tmp_path / "old", NO_JUMP.replace("VALUE", "28").replace("GROWN", "n * 3"))
    new = objects(ORACLE, tmp_path / "new", NO_JUMP.replace("VALUE", "60").replace("GROWN", "n * n * n * 11 + n / 7"))
    assert old is not None
    assert new is not None
    assert "stores" in differences(old, new).functions


NUMBERED = r"""
void told(int line);
int changed(int n) { return n * 3; }
int asserts(int n) { if (n > 5) told(__LINE__); return n; }
int asserts_too(int n) { if (n > 7) told(__LINE__); return n; }
"""


def test_functions_that_contain_their_lines_number_differ_unless_they_keep_it(target: str, tmp_path: Path) -> None:
    edited = NUMBERED.replace("return n * 3;", "\n  n += 1;\n  return n * 3;")
    lines = [ReplacedLines(range(3, 4), range(3, 6))]
    old = objects(target, tmp_path / "old", NUMBERED)
    moved = objects(target, tmp_path / "moved", edited)
    kept = objects(target, tmp_path / "kept", unmoved_lines.numbered(edited, lines))
    assert old is not None
    assert moved is not None
    assert kept is not None
    assert differences(old, moved).functions == {"changed", "asserts", "asserts_too"}
    assert differences(old, kept) == CodeChange(functions=frozenset({"changed"}), elsewhere=[])


def test_an_object_is_altered_by_its_code_or_data_and_not_by_its_lines(tmp_path: Path) -> None:
    old = objects("armv5", tmp_path / "old", SOURCE)
    assert old is not None
    for number, (anchor, replacement, altered) in enumerate(
        [
            ("int counter;", "\nint counter;", []),
            ("return n * 3", "return n * 5", ["some.o"]),
            ("4, 9}", "4, 8}", ["some.o"]),
        ]
    ):
        new = objects("armv5", tmp_path / str(number), SOURCE.replace(anchor, replacement))
        assert new is not None
        assert altered_objects(old, new) == altered
    assert altered_objects(msgspec.structs.replace(old, objects={}), old) == ["some.o"]
    assert altered_objects(old, msgspec.structs.replace(old, objects={})) == []


def test_the_alignment_of_what_the_linker_places_is_data(target: str, tmp_path: Path) -> None:
    text = "char buffer[64] __attribute__((common, aligned(8)));"
    assert compared(target, tmp_path, text, text.replace("(8)", "(1)")).elsewhere == ["some.o"]


def test_the_alignment_of_data_is_data(target: str, tmp_path: Path) -> None:
    data = "static char one; static char buffer[64] __attribute__((aligned(8)));"
    text = f"{data} char *get(int n) {{ return n ? &one : buffer; }}"
    assert compared(target, tmp_path, text, text.replace("(8)", "(1)")).elsewhere == ["some.o"]


def test_code_of_a_section_without_functions_is_data(tmp_path: Path) -> None:
    text = '__asm__(".section .text.fix, \\"ax\\"\\n.long 1, 2\\n.text");\nint some(int n) { return n; }\n'
    assert compared(ORACLE, tmp_path, text, text.replace("1, 2", "1, 3")).elsewhere == ["some.o"]


def test_addresses_that_exist_only_as_relocations_are_not_padding(tmp_path: Path) -> None:
    table = '__asm__(".text\\n.quad one, two\\n");\nint one(int n) { return n; }\nint two(int n) { return n + 1; }\n'
    found = compared(ORACLE, tmp_path, table, table.replace("one, two", "two, one"), "-fno-toplevel-reorder")
    assert found.functions == {"one", "two"}


def test_the_places_of_thread_local_variables_are_data(target: str, tmp_path: Path) -> None:
    """Other objects refer to them by name, so their code stays the same."""
    text = "__thread char one[1]; __thread char two[15];"
    swapped = "__thread char two[15]; __thread char one[1];"
    assert compared(target, tmp_path, text, swapped, "-fno-toplevel-reorder").elsewhere == ["some.o"]


@pytest.mark.parametrize("kind", ["", ".type table, %object\\n"], ids=["untyped", "unmeasured"])
def test_an_assembly_symbol_visible_to_other_objects_is_data_in_every_section(tmp_path: Path, kind: str) -> None:
    kind = kind.replace("%", "@")
    text = f'__asm__(".section .rodata\\n.globl table\\n{kind}table: .long 1, 2, 3\\n.text");\n'
    assert compared(ORACLE, tmp_path, text, text.replace("1, 2, 3", "1, 4, 3")).elsewhere == ["some.o"]


PARTED = r"""
void refuse(const char *why) __attribute__((cold));

__attribute__((noinline)) int grows(int n) { return n * 3; }

__attribute__((noinline)) int stays(int *numbers, int n)
{
    if (n < 0) {
        refuse("negative");
        numbers[0] = 1;
    }
    return numbers[n & 7] + n;
}
"""


def test_a_part_in_its_own_section_does_not_change_when_another_function_grows(tmp_path: Path) -> None:
    """GCC for x86-64 splits a function. Its parts refer to each other by their distance from the section's start."""
    old = objects(ORACLE, tmp_path, PARTED)
    new = objects(ORACLE, tmp_path, PARTED.replace("n * 3", "n * 3 + (n > 5 ? n % 11 : n / 7)"))
    assert old is not None
    assert new is not None
    assert "stays.cold" in old.objects["some.o"].functions
    assert differences(old, new) == CodeChange(functions=frozenset({"grows"}), elsewhere=[])
    led = objects(ORACLE, tmp_path, PARTED.replace("numbers[n & 7]", "numbers[n & 7] * 5"))
    assert led is not None
    assert "stays" in differences(old, led).functions
