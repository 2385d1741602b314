"""tools/lines_left gives the reasons why lines do not run. It guesses classes from words, and counts lines without."""

from __future__ import annotations

from collections import Counter

from harness.core.strict_toml import ROOT, read_toml
from tools.lines_left import REASONS, UNREACHED, UNUSED, Reason, Reasons, classified, functions_of, unused_in

SOURCE = """\
static int save(int file) {
    if (write(file) == -1) {
        serverLog(LL_WARNING,"no");
        return C_ERR;
    }
    if (file > 1) {
        other(file);
    }
    return C_OK;
}

/* save, again */
void printRepr(void) {
    save(1);
}

void never(void) {
    save(2);
    return NULL;
}

void forgotten(void)
{
    save(3);
}

int main(void) { printRepr(); never(); }
"""
TEXT = SOURCE.splitlines()
RAN = {1: True, 2: True, 3: False, 4: False, 6: True, 7: False, 9: True, 13: False, 14: False}
RAN |= {17: False, 18: False, 19: False, 22: False, 24: False}


def test_functions_end_at_the_margin() -> None:
    functions = functions_of(TEXT)
    assert {functions[line] for line in range(1, 11)} == {"save"}
    assert functions[18] == "never"
    assert functions[24] == "forgotten"
    assert 11 not in functions


def test_a_line_has_the_class_of_its_branch_but_not_in_a_function_that_was_not_entered() -> None:
    reasons = read_toml(REASONS, Reasons).reasons
    unused = unused_in({"file.c": SOURCE})
    assert unused == {"forgotten", "main"}
    found = classified("file.c", TEXT, RAN, reasons, unused)
    assert found == Counter({"failures": 2, "prints": 2, UNREACHED: 4, UNUSED: 2})


def test_a_line_that_a_class_names_belongs_to_it() -> None:
    reasons = [Reason(name="guards", why="", lines=("file.c:3-4", "file.c:13"))]
    assert classified("file.c", TEXT, RAN, reasons, frozenset()) == Counter({"guards": 4, UNREACHED: 6})
    assert not reasons[0].names("other.c", 3)


def test_the_page_describes_every_class() -> None:
    page = (ROOT / "docs" / "COVERAGE.md").read_text("utf-8")
    names = [one.name for one in read_toml(REASONS, Reasons).reasons]
    assert [name for name in [*names, UNUSED, UNREACHED] if f"\n| {name} | " not in page] == []
