"""A limit that is too low for servers is raised or refused before anything runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.core.errors import ExitCode
from harness.core.strict_toml import ROOT

LIMITED = """
import os, resource, sys
from harness.core.errors import InfrastructureError
from harness.run.environments import inherited_limits
name, soft, hard = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if os.geteuid() == 0:
    os.setuid(65534)
granted = resource.getrlimit(getattr(resource, name))[1]
resource.setrlimit(getattr(resource, name), (soft, granted if hard == -1 else hard))
try:
    inherited_limits.refuse_low()
except InfrastructureError as error:
    print(error)
    sys.exit(error.exit_code)
print(resource.getrlimit(getattr(resource, name))[0])
"""


def limited(name: str, soft: int, hard: int) -> tuple[int, str]:
    words = [sys.executable, "-c", LIMITED, name, str(soft), str(hard)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    return ended.returncode, ended.stdout + ended.stderr


NAMES = {
    "RLIMIT_AS": 8 << 30,
    "RLIMIT_DATA": 4 << 30,
    "RLIMIT_FSIZE": 1 << 30,
    "RLIMIT_STACK": 8 << 20,
    "RLIMIT_NPROC": 1000,
}


@pytest.mark.parametrize(("name", "least"), NAMES.items())
def test_a_low_limit_is_raised_as_far_as_the_user_may(name: str, least: int) -> None:
    assert limited(name, least * 3 // 4, -1) == (0, f"{least}\n")
    assert limited(name, least, least) == (0, f"{least}\n"), "it is enough"


@pytest.mark.parametrize(("name", "least"), NAMES.items())
def test_a_low_limit_that_nobody_may_raise_is_refused_with_what_to_type(name: str, least: int) -> None:
    """Regression: a server that could make no thread, or write no file, was a finding."""
    code, said = limited(name, least * 3 // 4, least * 3 // 4)
    assert code == ExitCode.INFRASTRUCTURE, said
    assert "the limit on " in said
    assert "ulimit -" in said
