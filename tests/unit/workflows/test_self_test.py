"""plumb self-test checks the targets whose emulators are in the cache, and names the others. With an empty cache it
fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.build.emulators.qemu_source import pinned_qemu, qemu_key
from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.plan.catalog import Catalog
from harness.workflows.canaries import self_test
from harness.workflows.workbench import Workbench
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fakes import Plumb


def with_emulators(cache: Cache, *names: str) -> Cache:
    """A cache that contains these emulators."""
    key = qemu_key(pinned_qemu())
    for name in names:
        cache.folder("emulators", f"{key}-{name}", lambda into: (into / "program").touch())
    return cache


def bench_with(folder: Path, *names: str) -> Workbench:
    cache = with_emulators(Cache(folder, print), *names)
    return Workbench(catalog=Catalog(), cache=cache, progress=fakes.quiet(), offline=True)


def test_an_empty_cache_checks_nothing_and_suggests_a_command(plumb: Plumb) -> None:
    code, out, err = plumb("self-test")
    assert (code, out) == (ExitCode.NOTHING_SELECTED, "")
    assert "no emulator is built for " in err
    assert "self-test --target required" in err


def test_a_target_without_a_user_mode_emulator_is_refused(plumb: Plumb) -> None:
    code, _, err = plumb("self-test", "--target", "armv5-kernel")
    assert code == ExitCode.USAGE
    assert "armv5-kernel is not a target of the user tier" in err


@pytest.mark.usefixtures("complete")
def test_every_target_whose_emulator_is_built_is_checked_and_the_others_are_named(tmp_path: Path) -> None:
    selection = self_test.select(bench_with(tmp_path, "arm", "s390x"), ())
    targets = Catalog().targets
    assert set(selection.targets) == {
        name for name, one in targets.items() if one.emulator.is_qemu_user and one.emulator.qemu in {"arm", "s390x"}
    }
    (remark,) = selection.remarks
    unnamed = {name for name, one in targets.items() if one.emulator.is_qemu_user} - set(selection.targets)
    assert remark.startswith(f"no emulator is built for {', '.join(name for name in targets if name in unnamed)}; ")
    assert remark.endswith(" builds one")


@pytest.mark.usefixtures("bare")
def test_an_emulator_without_a_compiler_is_named_and_not_checked(tmp_path: Path, plumb: Plumb) -> None:
    with_emulators(Cache(tmp_path / "cache", print), "s390x")
    code, _, err = plumb("self-test")
    assert code == ExitCode.NOTHING_SELECTED
    assert "no compiler is installed for s390x, whose emulator is built" in err


@pytest.mark.usefixtures("bare")
def test_packages_that_a_named_target_lacks_are_an_error_with_the_command(plumb: Plumb) -> None:
    code, _, err = plumb("self-test", "--target", "s390x", "--no-install")
    assert code == ExitCode.INFRASTRUCTURE
    assert "apt-get install " in err


@pytest.mark.usefixtures("complete")
def test_an_emulator_that_is_damaged_counts_as_not_built(tmp_path: Path) -> None:
    bench = bench_with(tmp_path, "s390x", "sparc64")
    (entry,) = (path for path in (tmp_path / "emulators").glob("*-s390x") if path.is_dir())
    (entry / "program").write_text("another", "utf-8")
    again = Workbench(catalog=bench.catalog, cache=Cache(tmp_path, print), progress=fakes.quiet(), offline=True)
    assert self_test.select(again, ()).targets == ["sparc64"]
