"""The failure of a build that is a finding: the server's tree does not compile for the target."""

from __future__ import annotations

from harness.analysis.compiler_output import complaints
from harness.core.errors import ExitCode, PlumblineError


class BuildFailedError(PlumblineError):
    """The server's tree does not compile for the target: a finding of the check."""

    exit_code = ExitCode.FINDINGS

    def __init__(self, what: str, *, where: str = "", because: str = "", log: str = "", output: str = "") -> None:
        """`output`: make's complete output."""
        super().__init__(what, where=where, because=because, log=log)
        self.complaints = complaints(output)
        """The errors, in a form that allows two machines' builds to be compared."""
