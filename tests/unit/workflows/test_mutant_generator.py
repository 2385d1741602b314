"""Mutants by rule: the changes of each operator, stable names, and samples that a seed determines."""

from __future__ import annotations

import collections
import shutil
from typing import TYPE_CHECKING

import pytest

from harness.analysis.c_source.syntax import with_first_alternatives
from harness.core.errors import UsageError
from harness.plan.catalog import Catalog
from harness.workflows.mutation_testing.generator.mutants import Mutant, generate, in_sample_order
from harness.workflows.mutation_testing.generator.operators import (
    TRANSFORMER_FOLDER,
    OperatorTable,
    operators_digest,
    read_operators,
)
from harness.workflows.mutation_testing.generator.transformers.registry import TRANSFORMERS
from harness.workflows.mutation_testing.mutations import plant
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

TABLE = read_operators()


def mutants(folder: Path, source: str, operator: str = "", file: str = "src/part.c") -> list[Mutant]:
    """The mutants that one operator, or all of them, make of a file."""
    fakes.write(folder / file, source)
    chosen = [one for one in TABLE.operators if operator in {"", one.name}]
    return generate(folder, OperatorTable(sources=TABLE.sources, operators=chosen))


def changed(folder: Path, source: str, operator: str, file: str = "src/part.c") -> list[str]:
    """The lines of each planted mutant that are not in the source."""
    found = []
    for mutant in mutants(folder / "tree", source, operator, file):
        into = folder / mutant.name
        plant(mutant, folder / "tree", into)
        lines = (into / file).read_text("utf-8").splitlines()
        before = source.splitlines()
        assert len(lines) == len(before), "a mutant must keep line numbers, because assertions contain them"
        new = [line.strip() for line, old in zip(lines, before, strict=True) if line != old]
        found.append(" / ".join(new))
    return found


CASES: list[tuple[str, str, list[str]]] = [
    (
        "drop-host-swap",
        "void f(header *h) {\n h->size = intrev32ifbe(h->size + 1);\n memrev64ifbe(&h->sum);\n intrev32(7);\n}\n",
        ["h->size = (h->size + 1);", "((void)(&h->sum));"],
    ),
    (
        "drop-network-swap",
        "void f(packet *p) {\n p->port = htons(p->port);\n p->epoch = ntohu64(p->epoch);\n swap(p->port);\n}\n",
        ["p->port = (p->port);", "p->epoch = (p->epoch);"],
    ),
    (
        "host-swap-always",
        "void f(header *h) {\n h->size = intrev16ifbe(h->size);\n memrev64ifbe(&h->sum);\n}\n",
        ["h->size = intrev16(h->size);", "memrev64(&h->sum);"],
    ),
    (
        "network-swap-always",
        "void f(packet *p) {\n p->port = ntohs(p->port);\n p->epoch = htonu64(p->epoch);\n}\n",
        ["p->port = __builtin_bswap16(p->port);", "p->epoch = __builtin_bswap64(p->epoch);"],
    ),
    (
        "swap-of-another-variable",
        "void f(void) {\n uint64_t sum = 0, size = 0;\n int a = 0;\n memrev64ifbe(&sum);\n intrev32ifbe(a);\n}\n",
        ["memrev64ifbe(&size);"],
    ),
    (
        "dereference",
        (
            "void f(char *p, struct part *q) {\n uint32_t word;\n struct part all;\n"
            " memcpy(&word, p + 1, sizeof(word));\n memcpy(p, &word, 4);\n memcpy(p, &word, 3);\n"
            " memcpy(&all, q, sizeof(all));\n}\n"
            "void g(void) {\n uint32_t word, other;\n memcpy(&word, &other, 4);\n}\n"
        ),
        ["word = *(uint32_t *)(p + 1);", "*(uint32_t *)(p) = word;", "word = *(uint32_t *)(&other);"],
    ),
    (
        "pretend-aligned",
        (
            "void f(char *p, long n) {\n while ((uintptr_t)p & 7) p++;\n"
            " if ((unsigned long)p % sizeof(long) == 0) g(p);\n if (n & 3) g(p);\n}\n"
        ),
        ["while (0) p++;", "if (0 == 0) g(p);"],
    ),
    (
        "forget-machine",
        (
            "#if defined(__arm__) || defined(__linux__)\nint a;\n#endif\n#ifdef __sparc__\nint b;\n#endif\n"
            "#ifndef USE_ALIGNED_ACCESS\nint c;\n#endif\n#if (BYTE_ORDER == BIG_ENDIAN)\nint d;\n#endif\n"
            "#ifdef OTHER\n#endif\n"
        ),
        ["#if 0 || defined(__linux__)", "#if 0", "#if 1", "#if 0"],
    ),
    (
        "narrow-to-long",
        (
            "void f(long long wide, const long long fixed, int small) {\n uint64_t count = 0;\n int64_t filled;\n"
            " uint64_t *there;\n fill(&filled);\n use((long long)small, (uint64_t *)there);\n}\n"
        ),
        [
            "void f(long long wide, const long long fixed, int small) { wide = (long)(wide);",
            "unsigned long count = 0;",
            "use((long)small, (uint64_t *)there);",
        ],
    ),
    (
        "narrow-to-size",
        "struct part {\n uint64_t given;\n uint64_t kept;\n};\nvoid f(struct part *p) {\n fill(&p->given);\n}\n",
        ["size_t kept;"],
    ),
    ("narrow-to-int", "void f(void) {\n size_t size = 0;\n short little = 0;\n}\n", ["unsigned int size = 0;"]),
    (
        "printf-length",
        'void f(void) {\n printf("%% %5lld of %zu, %d", a, b, c);\n other("%lld", a);\n}\n',
        ['printf("%% %5lld of %u, %d", a, b, c);'],
    ),
    (
        "printf-length-of-long",
        'void f(void) {\n printf("%% %5lld of %zu, %d", a, b, c);\n other("%lld", a);\n}\n',
        ['printf("%% %5ld of %zu, %d", a, b, c);'],
    ),
    (
        "signed-for-unsigned",
        "int f(unsigned char first) {\n unsigned char *p = g();\n return (uint8_t)*p + first;\n}\n",
        ["signed char *p = g();", "return (int8_t)*p + first;"],
    ),
    ("plain-for-unsigned", "int f(void) {\n uint8_t c = g();\n return c;\n}\n", ["char c = g();"]),
    ("plain-for-signed", "struct part {\n int8_t value;\n char name;\n};\n", ["char value;"]),
    ("drop-packed", "struct __attribute__ ((__packed__)) part {\n char a;\n};\n", ["struct  part {"]),
    (
        "add-packed",
        (
            "#define SET(a) g(&(a))\n#define THROUGH(a) SET(a)\n#define BOTH(a) g(1 && a)\n"
            "typedef int (*callback)(void);\ntypedef char buffer[8];\n"
            "struct taken {\n char a;\n int b;\n} one;\nstruct array {\n char c;\n int d[2];\n} two;\n"
            "struct inner {\n char e;\n struct taken f;\n} three;\nstruct macro {\n char g;\n int h;\n} four;\n"
            "struct unknown {\n char i;\n buffer j;\n} five;\n"
            "struct plain {\n char k;\n size_t l;\n callback m;\n int (*n)(void);\n char *o;\n} six;\n"
            "struct bytes {\n int t;\n unsigned char p[3][4];\n char *q;\n} seven;\n"
            "struct pointers {\n char r;\n char (*s)[2], t[2];\n} eight;\n"
            "void f(void) {\n g(&one.b);\n THROUGH(four.h);\n use(six.l, &six);\n BOTH(six.l);\n}\n"
        ),
        [f"}} __attribute__((packed)) {name};" for name in ("one", "two", "three", "four", "five", "eight")],
    ),
    (
        "header-field-order",
        (
            "struct __attribute__((packed)) part {\n uint8_t size;\n uint8_t room;\n char kind;\n int all[];\n};\n"
            "struct other {\n char a;\n int b;\n};\n"
        ),
        ["char kind; / uint8_t room;"],
    ),
    (
        "header-field-size",
        "struct __attribute__((packed)) part {\n uint32_t size;\n char all[];\n};\nstruct other {\n uint32_t b;\n};\n",
        ["uint16_t size;"],
    ),
    (
        "other-size",
        "void f(void) {\n g(sizeof(uint64_t), sizeof(*p));\n h(sizeof(char *));\n}\n",
        ["g(sizeof(unsigned long), sizeof(*p));", "g(sizeof(uint64_t), sizeof(p));"],
    ),
    (
        "swap-halves",
        "void f(void) {\n uint64_t a = g();\n static uint64_t b = 1;\n int c = 2;\n c = 3;\n}\n",
        [
            (
                "uint64_t a = __extension__ ({ unsigned long long halves_ = (unsigned long long)(g()); "
                "__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? halves_ << 32 | halves_ >> 32 : halves_; });"
            )
        ],
    ),
]


@pytest.mark.parametrize(("operator", "source", "expected"), CASES, ids=[case[0] for case in CASES])
def test_an_operator_changes_only_its_sites(tmp_path: Path, operator: str, source: str, expected: list[str]) -> None:
    assert changed(tmp_path, source, operator) == expected


def test_every_operator_is_tested_here_and_names_existing_files() -> None:
    assert [case[0] for case in CASES] == [operator.name for operator in TABLE.operators]
    catalog = Catalog()
    for operator in TABLE.operators:
        assert set(operator.targets) <= set(catalog.targets), operator.name
        assert operator.targets, operator.name
        assert operator.rules or operator.transformer, operator.name
        assert operator.transformer in {"", *TRANSFORMERS}, operator.name
    assert {operator.transformer for operator in TABLE.operators} == {"", *TRANSFORMERS}


def test_a_mutant_is_named_by_operator_file_and_function(tmp_path: Path) -> None:
    source = "void f(void) {\n htons(1);\n htons(1);\n}\nint g(void) {\n return htons(1);\n}\n"
    found = mutants(tmp_path, source, "drop-network-swap", "deps/lua/src/part.c")
    assert [(one.name, one.line) for one in found] == [
        ("drop-network-swap-lua-part-f-1", 2),
        ("drop-network-swap-lua-part-f-2", 3),
        ("drop-network-swap-lua-part-g-1", 6),
    ]
    (header,) = mutants(tmp_path / "other", "struct part {\n int8_t a;\n};\n", "plain-for-signed", "src/part.h")
    assert header.name == "plain-for-signed-part_h-part-1"


def test_equal_lines_are_distinguished(tmp_path: Path) -> None:
    source = "void f(void) {\n htons(1);\n}\nvoid g(void) {\n htons(1);\n}\n"
    for number, mutant in enumerate(mutants(tmp_path / "tree", source, "drop-network-swap"), 1):
        plant(mutant, tmp_path / "tree", tmp_path / str(number))
        lines = (tmp_path / str(number) / "src" / "part.c").read_text("utf-8").splitlines()
        assert [line for line in lines if line != " htons(1);"] == [
            "void f(void) {",
            *([" (1);"] if number == 1 else []),
            "}",
            "void g(void) {",
            *([" (1);"] if number == 2 else []),
            "}",
        ]


def test_code_that_the_parser_does_not_understand_is_unchanged(tmp_path: Path) -> None:
    source = "void f(void) {\n x = htons(a @ + 1);\n y = htons(a);\n}\n"
    assert [one.line for one in mutants(tmp_path, source, "drop-network-swap")] == [3]


PARTED = """#ifdef __arm__
int word;
#endif
void f(int a) {
 int64_t wide = 0;
#if A
 take(htons(a),
#else
 give(htons(a),
#endif
  ntohl(a));
#if A
 use(htonl(
#else
 use(htonl(1 +
#endif
  a));
 use(ntohs(a), wide);
}
"""
"""A function whose last line the parser does not understand while the alternatives part its statements."""


def test_a_function_is_parsed_although_alternatives_split_a_statement(tmp_path: Path) -> None:
    found = [(one.name, one.line) for one in mutants(tmp_path, PARTED)]
    dropped = [(name, line) for name, line in found if name.startswith("drop-network-swap")]
    assert dropped == [(f"drop-network-swap-part-f-{number}", line) for number, line in enumerate([7, 9, 11, 18], 1)]
    assert ("narrow-to-int-part-f-1", 5) in found
    # Complete files are still read unchanged.
    assert ("forget-machine-part-file-1", 1) in found
    for mutant in mutants(tmp_path, PARTED):
        text = f"{mutant.before}\n{mutant.after}"
        assert "#else" not in text, f"{mutant.name} changes a directive beside its site"


def test_a_file_that_parses_is_read_once(tmp_path: Path) -> None:
    source = "void f(void) {\n#if A\n htons(1);\n#else\n htons(2);\n#endif\n}\n"
    assert [one.line for one in mutants(tmp_path, source, "drop-network-swap")] == [3, 5]
    assert with_first_alternatives(source.encode()) is None


def test_bytes_that_are_not_utf_8_are_unchanged(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    lines = [b"void f(void) {", b" use(htons(1)); /* \xfc */", b" use(htons(2));", b" g(htons('\xfc'));", b"}", b""]
    (tmp_path / "src" / "part.c").write_bytes(b"\n".join(lines))
    table = OperatorTable(
        sources=TABLE.sources, operators=[one for one in TABLE.operators if one.fault == "byte-order"]
    )
    made = generate(tmp_path, table)
    drop, always = "drop-network-swap", "network-swap-always"
    # On line 2 `htons(1)` is unique, and `htons` only with the rest of its line.
    assert [(one.operator, one.line) for one in made] == [(drop, 2), (drop, 3), (always, 3)]


def test_a_directive_on_several_lines_is_unchanged(tmp_path: Path) -> None:
    source = "#if defined(__arm__) && defined \\\n (__sparc__)\nint a;\n#endif\n"
    assert [one.before for one in mutants(tmp_path, source, "forget-machine")] == ["defined(__arm__)"]


def test_a_change_keeps_the_number_of_lines(tmp_path: Path) -> None:
    source = "void f(int a) {\n use(htons(\n  a));\n other();\n}\n"
    assert changed(tmp_path, source, "drop-network-swap") == ["use((a) / );"]


def test_only_a_variable_that_is_declared_earlier_is_used_as_a_replacement(tmp_path: Path) -> None:
    later = "void f(void) {\n int sum = 0;\n htons(sum);\n int late = 0;\n}\n"
    outside = "void f(void) {\n int sum = 0;\n {\n  int inner = 0;\n }\n htons(sum);\n}\n"
    assert mutants(tmp_path, later, "swap-of-another-variable") == []
    assert mutants(tmp_path, outside, "swap-of-another-variable") == []


def test_other_files_are_not_changed(tmp_path: Path) -> None:
    source = "void f(void) {\n htons(1);\n}\n"
    assert mutants(tmp_path, source, "drop-network-swap", "deps/jemalloc/src/part.c") == []
    assert mutants(tmp_path / "header", "struct part {\n char a;\n};\n", "add-packed", "src/part.h") == []


def several(folder: Path) -> list[Mutant]:
    source = "void f(uint64_t a) {\n" + " uint64_t n = a; htons(n); htons(a);\n" * 9 + "}\n"
    for file in ("src/b.c", "src/c.c", "deps/hiredis/d.c"):
        fakes.write(folder / file, source)
    return mutants(folder, source, file="src/a.c")


def test_a_sample_takes_operators_and_files_in_turn(tmp_path: Path) -> None:
    every = several(tmp_path)
    kinds = {mutant.operator for mutant in every}
    order = in_sample_order(every, 3)
    assert sorted(mutant.name for mutant in order) == sorted(mutant.name for mutant in every)
    first = order[: 4 * len(kinds)]
    assert set(collections.Counter(mutant.operator for mutant in first).values()) == {4}
    pairs = collections.Counter((mutant.operator, mutant.file) for mutant in first)
    assert set(pairs.values()) == {1}, "each operator has taken each of the four files once"


def test_a_seed_determines_a_sample(tmp_path: Path) -> None:
    every = several(tmp_path)
    assert in_sample_order(every, 3) == in_sample_order(list(every), 3)
    assert in_sample_order(every, 3) != in_sample_order(every, 4)
    assert len({in_sample_order(every, seed)[0].operator for seed in range(9)}) > 1, "no operator is always the first"


def test_an_operators_file_is_read_strictly(tmp_path: Path) -> None:
    file = tmp_path / "operators.toml"
    file.write_text('sources = []\n[[operators]]\nname = "one"\ntarget = []\n', "utf-8")
    with pytest.raises(UsageError, match="not a valid operatortable"):
        read_operators(file)
    assert operators_digest(file) != operators_digest()


def test_the_digest_of_operators_counts_every_module_of_transformers(tmp_path: Path) -> None:
    copy = tmp_path / "transformers"
    shutil.copytree(TRANSFORMER_FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert operators_digest(transformers=copy) == operators_digest()
    for module in sorted(copy.glob("*.py")):
        content = module.read_bytes()
        module.write_bytes(content + b"# changed\n")
        assert operators_digest(transformers=copy) != operators_digest(), module.name
        module.write_bytes(content)
    assert len(list(copy.glob("*.py"))) > 3
