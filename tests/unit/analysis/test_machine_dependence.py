"""Lines of C that depend on the machine are recognised, and similar lines that do not depend on it are ignored."""

from __future__ import annotations

import pytest

from harness.analysis.c_source.machine_dependence import Dependence, DependentLine, dependent_lines


@pytest.mark.parametrize(
    ("statement", "dependence", "text"),
    [
        ("len = htonl(len);", Dependence.BYTE_ORDER, "htonl"),
        ("memrev64ifbe(&sum);", Dependence.BYTE_ORDER, "memrev64ifbe"),
        ("x = __builtin_bswap32(x);", Dependence.BYTE_ORDER, "__builtin_bswap32"),
        ("x = le32toh(x);", Dependence.BYTE_ORDER, "le32toh"),
        ("memcpy(&x, p, sizeof(x));", Dependence.BYTES, "memcpy"),
        ("memcpy(p, q, 8);", Dependence.BYTES, "memcpy"),
        ("long x, *q; memcpy(&x, q, sizeof(x));", Dependence.BYTES, "memcpy"),
        ("struct s x; memcpy(p, &x, sizeof(x));", Dependence.BYTES, "memcpy"),
        ("struct s *q; memcpy(&q->x, p, sizeof(q->x));", Dependence.BYTES, "memcpy"),
        ("rioWrite(r, &x, 8);", Dependence.BYTES, "rioWrite"),
        ("s = sdscatlen(s, (char *)&x, sizeof(x));", Dependence.BYTES, "sdscatlen"),
        ("x = *(const uint32_t *)p;", Dependence.BYTES, "const uint32_t *"),
        ("x = ((uint16_t *)p)[i];", Dependence.BYTES, "uint16_t *"),
        ("x = *(uint64_t *)(p + 4);", Dependence.BYTES, "uint64_t *"),
        ("q = (unsigned char *)&x;", Dependence.BYTES, "unsigned char *"),
        ("x = (size_t)n * 8;", Dependence.WIDTH, "size_t"),
        ("x = (unsigned long)n;", Dependence.WIDTH, "unsigned long"),
        ('printf("%-4s %lu", s, n);', Dependence.WIDTH, "printf"),
        ("x = (char)n;", Dependence.SIGN, "char"),
    ],
)
def test_a_statement_that_depends_on_the_machine_is_reported(statement: str, dependence: Dependence, text: str) -> None:
    source = f"void f(void) {{\n    g();\n    {statement}\n}}\n"
    found = dependent_lines(source.encode())
    assert found.keys() == {3}
    assert (found[3].dependence, found[3].text) == (dependence, text)


@pytest.mark.parametrize(
    "statement",
    [
        "x = htonl;",
        "getLongFromObject(c, o, &x, NULL);",
        "memcpy(p, q, len);",
        "memcpy(p, q, 1);",
        "rioRead(r, &type, 1);",
        "enterblock(state, &block, 0);",
        "memset(&address, 0, sizeof(address));",
        "node *h; memcpy(&h, p, sizeof(h));",
        "node *h; memcpy(p, &h, sizeof(node *));",
        "p = (struct node *)q;",
        "p = (uint32_t *)q;",
        "x = (unsigned char)n;",
        "x = (long long)n;",
        "x = (uint64_t)n;",
        'printf("%llu %d %s 100%", n, i, s);',
        "/* htonl(x) */",
        's = "htonl(x)";',
    ],
)
def test_a_statement_that_is_the_same_everywhere_is_not_reported(statement: str) -> None:
    assert dependent_lines(f"void f(void) {{\n    {statement}\n}}\n".encode()) == {}


def test_of_two_dependences_of_a_line_the_first_in_order_is_reported() -> None:
    assert dependent_lines(b"void f(void) { x = (long)htonl((char)n); }\n") == {
        1: DependentLine(Dependence.BYTE_ORDER, "htonl")
    }


def test_every_line_of_an_expression_is_reported() -> None:
    source = b"void f(void) {\n    memcpy(&x,\n           p,\n           sizeof(x));\n}\n"
    assert dependent_lines(source).keys() == {2, 3, 4}


def test_a_file_whose_alternatives_split_a_statement_is_parsed_as_far_as_possible() -> None:
    source = b"void f(void) {\n#ifdef A\n    if (a) {\n#else\n    if (b) {\n#endif\n        n = htons(n);\n    }\n}\n"
    assert dependent_lines(source)[7].text == "htons"
    assert dependent_lines(b"") == {}
