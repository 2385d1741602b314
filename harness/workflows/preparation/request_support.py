"""Refuses requests that their targets, toolchains or server cannot fulfil, before anything is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.build import allocator
from harness.build.environments import guest_environment
from harness.build.sources.server_package import debian_architecture, package_named
from harness.build.toolchain import check_level
from harness.core.errors import UsageError
from harness.core.model import DEFAULT_OPTIMISATION
from harness.core.target_model import DEFAULT_FAMILY
from harness.isa import rules
from harness.isa.memory_order import check_order
from harness.plan.catalog import DEFAULT_SERVER

if TYPE_CHECKING:
    from harness.plan.catalog import Catalog
    from harness.plan.request import Request


def check_supported(catalog: Catalog, request: Request) -> None:
    """Raise UsageError for a policy, an allocator, an environment or a package that a target cannot have."""
    if package_named(request.server):
        _check_package(catalog, request)
    for target in (catalog.targets[name] for name in request.plan.targets):
        tools = catalog.toolchain_of(target)
        rules.check_toolchain(rules.policy_for(catalog.policies, request.policy, target), target, tools)
        allocator.check_supported(request.allocator, target, tools)
        guest_environment.check_supported(request.environment, target, tools, request.emulator)
        check_order(request.memory_order, target, request.emulator)
        check_level(tools, request.optimisation)


def _check_package(catalog: Catalog, request: Request) -> None:
    """Raise UsageError if the options do not apply to a distribution's package."""
    compiled = {
        "--toolchain": catalog.family != DEFAULT_FAMILY,
        "--allocator": request.allocator != "libc",
        "--optimisation": request.optimisation != DEFAULT_OPTIMISATION,
        "--cflags or --make": bool(request.settings.words),
    }
    for option, given in compiled.items():
        if given:
            raise UsageError(
                f"{option} controls how a server is compiled, but {request.server} is a package",
                where=option,
                remedy=f"leave it out; or --server {DEFAULT_SERVER}",
            )
    for target in (catalog.targets[name] for name in request.plan.targets):
        if target.emulator.is_elsewhere or target.emulator.detector or target.time_bits > target.width_bits:
            raise UsageError(
                f"{target.name} needs a server that is compiled for it, but {request.server} is a package",
                where="--target",
                remedy="docs/howto/packages.md lists the targets that have packages",
            )
        debian_architecture(catalog.toolchain_of(target), target)
