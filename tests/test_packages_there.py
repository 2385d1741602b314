"""Which Debian packages count as installed, by what dpkg says of them."""

from __future__ import annotations

from harness.build.toolchain import installed_in

STATES = """\
ccache triggers-pending
make installed
man-db triggers-awaited
half half-installed
opened unpacked
configured half-configured
gone config-files
never not-installed
"""


def test_a_package_whose_triggers_have_yet_to_run_is_there_and_half_of_one_is_not() -> None:
    assert installed_in(STATES) == {"ccache", "make", "man-db"}


def test_a_name_that_dpkg_does_not_know_is_not_there() -> None:
    assert installed_in("dpkg-query: no packages found matching nothing\n") == set()
