"""The runs: each combines a folder with values of every setting, and all pairs of values occur in some run.

Eight runs suffice for that, where each combination would need thousands.
"""

from __future__ import annotations

from typing import Literal

from harness.core.model import Record

Home = Literal["usual", "odd", "missing"]
FOLDERS = {
    "10 characters": ".",
    "31 characters": "thirty-one-letters",
    "150 characters": "a-folder-with-a-long-name/" * 5,
    "spaces": "a folder with spaces",
    "single quote": "it's",
    "double quote": 'the "second"',
    "non-ASCII": "plumblinië-ş",
    "symbolic link": "link",
    "usual": "checkout",
}
"""Kind of folder -> its path below a folder of ten characters; the beginning of it for one of LENGTHS."""
LENGTHS = {"10 characters": 10, "31 characters": 31, "150 characters": 150}


class Settings(Record, frozen=True):
    """What a process has around it. The default is what is usual."""

    other_user: bool = False
    """A user without an entry in passwd(5), not root."""
    private_files: bool = False
    """The umask is 077."""
    odd_temporary: bool = False
    """TMPDIR has spaces, quotes and a letter that is not ASCII."""
    home: Home = "usual"
    """An empty folder; one with an odd name; or no HOME."""
    locale: str = "C.UTF-8"
    timezone: str = "UTC"
    narrow_terminal: bool = False
    """Input and output are a terminal of 20 columns."""
    no_network: bool = False
    """No interface but loopback."""
    odd_git: bool = False
    """A configuration with core.autocrlf, hooks that fail and signatures that nobody can make; and the repository
    belongs to somebody else, which safe.directory does not permit.
    """

    def named(self) -> dict[str, str]:
        """Setting -> its value, of those that are not usual."""
        usual = Settings()
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: str(value) for name, value in values.items() if value != getattr(usual, name)}


class Run(Record, frozen=True):
    """The tests in one place."""

    name: str
    folder: str
    settings: Settings = Settings()
    busy: int = 0
    """Number of busy processes beside it."""
    times: int = 1
    """How often the tests run."""


TURKISH, PLAIN = "tr_TR.UTF-8", "C"
"""The letters i and I are not each other's in the first; messages of the second are ASCII."""
KATHMANDU, WEST = "Asia/Kathmandu", "<-1145>+11:45"
"""Neither is a whole number of hours from UTC; the second is on another day for most of the time."""
RUNS = (
    Run(
        "short",
        "10 characters",
        Settings(
            private_files=True, odd_temporary=True, narrow_terminal=True, odd_git=True, locale=PLAIN, timezone=KATHMANDU
        ),
    ),
    Run(
        "middle",
        "31 characters",
        Settings(
            other_user=True,
            private_files=True,
            narrow_terminal=True,
            home="missing",
            locale=TURKISH,
            timezone=KATHMANDU,
        ),
    ),
    Run(
        "long",
        "150 characters",
        Settings(odd_temporary=True, home="missing", locale=PLAIN, timezone=WEST),
    ),
    Run("spaces", "spaces", Settings(other_user=True, odd_git=True, locale=TURKISH, timezone=KATHMANDU)),
    Run(
        "apostrophe",
        "single quote",
        Settings(other_user=True, private_files=True, odd_temporary=True, no_network=True, locale=PLAIN, timezone=WEST),
    ),
    Run(
        "quotes",
        "double quote",
        Settings(other_user=True, narrow_terminal=True, odd_git=True, home="odd", locale=PLAIN, timezone=WEST),
    ),
    Run(
        "letters",
        "non-ASCII",
        Settings(narrow_terminal=True, no_network=True, odd_git=True, home="missing", locale=TURKISH, timezone=WEST),
    ),
    Run(
        "link",
        "symbolic link",
        Settings(
            private_files=True, odd_temporary=True, no_network=True, home="odd", locale=TURKISH, timezone=KATHMANDU
        ),
    ),
    Run("busy", "usual", busy=4, times=3),
)
SIDE_BY_SIDE = ("letters", "link")
"""The runs that go on at the same time."""
