"""Types of values: durations, ages, sizes, percentages, compiler flags and variables of make."""

from __future__ import annotations

import re
import shlex
from typing import Any, ClassVar

import click

NO_LIMIT = -1


class Duration(click.ParamType[float]):
    """A duration as `90`, `90s`, `10m` or `2h`, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds. Fails with examples of what is accepted."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", str(value))
        if found is None or not float(found[1]):
            self.fail(f"'{value}' is not a duration such as 90s, 10m or 2h", param, ctx)
        return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


class Age(click.ParamType[float]):
    """An age as `30d` or `12h`, in seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds. Fails with examples of what is accepted."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(h|d)", str(value))
        if found is None:
            self.fail(f"'{value}' is not an age such as 12h or 30d", param, ctx)
        return float(found[1]) * {"h": 3600, "d": 86400}[found[2]]


class Size(click.ParamType[int]):
    """A size as `500MiB` or `20GiB`, in bytes; `none` is -1."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes. Fails with examples of what is accepted."""
        if value == "none" or isinstance(value, int):
            return value if isinstance(value, int) else NO_LIMIT
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(MiB|GiB)", str(value))
        if found is None:
            self.fail(f"'{value}' is not a size such as 500MiB or 20GiB, nor none", param, ctx)
        return int(float(found[1]) * {"MiB": 1 << 20, "GiB": 1 << 30}[found[2]])


class Percentage(click.ParamType[float]):
    """A percentage as `3%` or `0.5%`, as a share of 1."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share. Fails with examples of what is accepted."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)%", str(value))
        if found is None:
            self.fail(f"'{value}' is not a percentage such as 3% or 0.5%", param, ctx)
        return float(found[1]) / 100


class CompilerFlags(click.ParamType[tuple[str, ...]]):
    """A distribution's compiler flags in one word, quoted as in a shell."""

    name = "flags"
    TAKEN: ClassVar = {
        r"-O.*": "the level is part of a build's name: --optimisation O3",
        r"-flto.*": "a level includes it: --optimisation O2-lto",
        r"-[cESo]|-o.+|-M.*": "the makefile says what is made: leave it out",
        r"-g0|-s|-fomit-frame-pointer": "findings need names, lines and stacks: leave it out",
    }
    """Pattern of flags that only Plumbline may set -> why, and what to type."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The individual flags. For words that are not flags, and for flags that Plumbline sets, it fails with advice
        what to type.
        """
        if isinstance(value, tuple):
            return value
        try:
            words = tuple(shlex.split(str(value)))
        except ValueError as error:
            self.fail(f"{value!r} is not quoted as in a shell: {str(error).lower()}", param, ctx)
        if not words or not words[0].startswith("-"):
            self.fail(f"{value!r} is not compiler flags such as '-D_FORTIFY_SOURCE=2 -fno-plt'", param, ctx)
        for word in words:
            for pattern, why in self.TAKEN.items():
                if re.fullmatch(pattern, word):
                    self.fail(f"{word}: {why}", param, ctx)
        return words


class MakeVariable(click.ParamType[str]):
    """A variable of make's command line."""

    name = "variable"
    TAKEN: ClassVar = {
        "CC": "--target says the compiler",
        "CXX": "--target says the compiler",
        "MALLOC": "use --allocator",
        "OPTIMIZATION": "use --optimisation",
        "V": "the log always has whole command lines",
        "uname_M": "--target says the machine",
        "uname_S": "every target runs Linux",
    }
    """Name of a variable that only Plumbline may set -> what to do instead."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The variable as given. For any other form, and for a variable that Plumbline sets, it fails with advice what
        to type.
        """
        found = re.fullmatch(r"(\w+)=(.*)", str(value))
        if found is None:
            self.fail(f"{value!r} is not NAME=VALUE, such as USE_SYSTEMD=yes or 'LDFLAGS=-Wl,-z,now'", param, ctx)
        if found[1] in self.TAKEN:
            self.fail(f"{found[1]} is given to every build: {self.TAKEN[found[1]]}", param, ctx)
        return str(value)
