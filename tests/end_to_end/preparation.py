"""Before the first test, builds everything that several end-to-end tests need, and prints each build and its reason.

`ci/test` calls it. Inside tests nobody would see the builds, and several tests would wait for one of them. `--all` adds
the builds for the extended tests. Builds that are in the cache take no time.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from harness.build.emulators.emulator_cache import Emulators
from harness.build.kernel import Kernels
from harness.build.server_build import Builder
from harness.build.sources.archives import Fetcher
from harness.build.workshop.build_plan import BuildPlan
from harness.core.cache import Cache
from harness.core.progress import Progress
from harness.plan.catalog import Catalog
from tests.end_to_end.support.machines import KERNELS, OTHERS, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SERVERS = {
    "redis-7.0.15": ("the clean release, which must pass", ["native", "armv5", "sparc64"]),
    "redis-3.2.6": ("the bad release, whose bugs must be found", ["native", "armv5"]),
}
"""Server -> why it is built, and for which targets."""
SERVERS_OF_ALL = {
    **SERVERS,
    "redis-7.0.15": (SERVERS["redis-7.0.15"][0], [*SERVERS["redis-7.0.15"][1], "armv7", "aarch64"]),
    "redis-3.2.6": (SERVERS["redis-3.2.6"][0], [*SERVERS["redis-3.2.6"][1], "sparc64"]),
    "valkey-9.1.2": ("the other family, which cannot start there", ["native", "sparc64"]),
}
"""The same for `--all`."""
AT_A_TIME = 2
"""Number of builds that run at the same time. Each runs as many compilers as there are processors."""


def steps(
    catalog: Catalog, cache: Cache, progress: Progress, *, everything: bool
) -> list[tuple[str, Callable[[], object]]]:
    """The steps of the preparation in order, each with its reason."""
    fetcher = Fetcher(cache, progress)
    emulators, kernels, builder = (
        Emulators(cache, fetcher, progress),
        Kernels(cache, fetcher, progress),
        Builder(cache, progress),
    )
    groups = [REQUIRED, OTHERS] if everything else [REQUIRED]
    machines = list(catalog.kernels) if everything else KERNELS

    def emulator(group: Sequence[str]) -> Callable[[], object]:
        return lambda: emulators.prepare([catalog.targets[name].emulator for name in group])

    def kernel(name: str) -> Callable[[], object]:
        spec = catalog.kernels[name]
        return lambda: kernels.build(spec, catalog.toolchains[spec.toolchain])

    def server(name: str, target: str) -> Callable[[], object]:
        found = catalog.targets[target]
        return lambda: builder.build(
            BuildPlan(
                tree=fetcher.server(catalog.servers[name]),
                target=found,
                tools=catalog.toolchain_of(found),
                optimisation="O2",
            )
        )

    return [
        *(
            (f"emulators for {', '.join(group)}: servers and programs run under them", emulator(group))
            for group in groups
        ),
        *((f"kernel {name}: the kernel tier's tests boot it", kernel(name)) for name in machines),
        *(
            (f"{name} for {target}: {why}", server(name, target))
            for name, (why, targets) in (SERVERS_OF_ALL if everything else SERVERS).items()
            for target in targets
        ),
    ]


def main() -> None:
    """Build everything."""
    progress = Progress()
    todo = steps(Catalog(), Cache.default(), progress, everything="--all" in sys.argv[1:])

    def take(number: int) -> None:
        why, build = todo[number]
        progress.say(f"before the tests, {number + 1} of {len(todo)}: {why}")
        build()

    # A build unpacks, configures and links on one processor. Another build uses the others.
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for taken in [pool.submit(take, number) for number in range(len(todo))]:
            taken.result()


if __name__ == "__main__":
    main()
