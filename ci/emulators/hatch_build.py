"""Give the wheel of emulators the tag of the machines that can run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlatformTag(BuildHookInterface[Any]):
    """Reads the tag that tools.emulators wrote."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Set the wheel's tag. It has programs for one kind of machine, and no code of Python."""
        build_data["pure_python"] = False
        build_data["tag"] = (Path(self.root) / "tag.txt").read_text("utf-8").strip()
