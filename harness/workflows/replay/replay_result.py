"""The result of a replay: its text for a person, and the exit codes of plumb replay and of `git bisect run`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

from harness.core.errors import ExitCode, RefusedTreeError
from harness.core.model import Record
from harness.workflows.replay.recurrence import Outcome  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Callable


class Replay(Record, frozen=True):
    """The result of a replay."""

    outcome: Outcome
    reason: str
    """Why the outcome is unknown; empty if the finding is reproduced or gone."""
    machine: bool
    """Whether an unknown outcome is the host's fault, not the tree's."""
    text: str
    """A description of what happened."""
    differing: str = ""
    """The name of the command with a wrong reply, if it is not the finding's command; otherwise empty."""
    host: Outcome | Literal[""] = ""
    """The same replay on the native build; empty if it was not asked. `reproduced`: the finding is not the target's."""


EXIT_CODES = {"reproduced": ExitCode.FINDINGS, "gone": ExitCode.PASS, "unknown": ExitCode.INCONCLUSIVE}
SKIP_COMMIT, STOP_BISECTING = 125, 255
"""Exit codes with which `git bisect run` skips a commit and stops the bisection (git-bisect(1))."""


def bisect_exit_code(run: Callable[[], Replay]) -> int:
    """Replay, and return the exit code for `git bisect run`.

    A tree whose outcome is unknown is skipped, and so is one that is refused. A problem of the host, such as a full
    disk, stops the bisection, because it must not be blamed on a commit.
    """
    try:
        result = run()
    except RefusedTreeError as error:
        print(error, file=sys.stderr)  # noqa: T201 - git shows it between its commits
        return SKIP_COMMIT
    except Exception as error:  # noqa: BLE001 - no exception is a commit's fault
        problem = str(error) or type(error).__name__
    except KeyboardInterrupt:
        problem = "interrupted"
    else:
        if result.outcome == "unknown":
            return STOP_BISECTING if result.machine else SKIP_COMMIT
        return int(EXIT_CODES[result.outcome])
    print(problem, file=sys.stderr)  # noqa: T201 - git shows it between its commits
    return STOP_BISECTING


def text_of(result: Replay, finding: str) -> str:
    """The result for a person, with the answer last."""
    answer = {"reproduced": "reproduced", "gone": "not reproduced", "unknown": "could not tell"}[result.outcome]
    why = f"\n  because: {result.reason}" if result.reason else ""
    host = {
        "": "",
        "reproduced": "\n  the native build shows it, too: it is on every machine",
        "gone": "\n  the native build does not show it",
        "unknown": "\n  the native build could not tell",
    }[result.host]
    return f"{result.text}\n{answer}: {finding}{why}{host}"
