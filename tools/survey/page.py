"""The tables of docs/PROGRAMS.md that show the survey."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from harness.core.finding import Verdict
from harness.report.formats.markdown import as_text
from harness.report.markdown_table import table
from tools.survey import document

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.survey.document import Answer, Answers, Package, PackageList, Reading, Survey, Thread, Trial

UNREAD = "**Not read yet.**"
SHOWN = 7
"""How many findings with one reason a row names."""
LONGEST_LINE = 200
"""Characters of a message beside what was found out about it."""
CAUSES = {
    "program": "A bug of the program",
    "test": "A mistake of its tests",
    "busy": "A limit of time",
    "build": "Its build",
    "emulator": "The emulator",
    "archive": "The archive of packages",
    "untested": "No tests of its own",
}


def state(chosen: PackageList, stored: Answers, survey: Survey) -> list[str]:
    """How much of the list has run, and what it showed."""
    trials = chosen.trials
    answers = [answer for trial in trials if (answer := stored.of(trial))]
    judged = [one for one in answers if one.verdict is not Verdict.UNKNOWN]
    verdicts = Counter(one.verdict for one in judged)
    told = ", ".join(f"{count} {verdict.value}" for verdict, count in sorted(verdicts.items()))
    failing = [(one, fault) for one in judged for fault in one.failing]
    readings = [survey.reading_of(one.package, one.target, fault.id) for one, fault in failing]
    causes: Counter[str] = Counter(one.cause for one in readings if one)
    read = "; ".join(f"{causes[cause]}: {words.lower()}" for cause, words in CAUSES.items() if causes[cause])
    by_rule = sum(not one.named for one in chosen.packages)
    of_rule = (
        f"The index of {chosen.indexed} has {chosen.considered} source packages. {chosen.libraries} build a library in "
        f"C or C++, and {chosen.fitting} of them fit the rule. The list has the first {by_rule} of them and "
        f"{len(chosen.packages) - by_rule} named packages, {len(trials)} trials in all."
    )
    some = len({one.package for one in judged})
    ran = (
        f"**{len(judged)} of {len(trials)} trials have a verdict** ({told or 'none'}), of {some} of "
        f"{len(chosen.packages)} packages. {len(answers) - len(judged)} more were tried and are UNKNOWN. "
        f"{len(trials) - len(answers)} have not been tried yet."
    )
    known = f"{sum(one is not None for one in readings)} of {len(failing)} findings have been read"
    return [of_rule, "", ran, known + (f" ({read})." if read else ".")]


def package_rows(chosen: PackageList, stored: Answers, survey: Survey) -> list[str]:
    """A row for each trial that was asked, in the order of the list."""
    rows = [
        _row("named" if package.named else number, trial, answer, survey)
        for number, package in enumerate(chosen.packages, start=1)
        for trial in package.trials
        if (answer := stored.of(trial))
    ]
    heads = ["", "package", "target", "verdict", "programs", "seconds", "faults, or why there is no verdict"]
    return table(heads, rows) if rows else ["None."]


def untried_rows(chosen: PackageList, stored: Answers) -> list[str]:
    """The trials that were not asked yet, in the order of the list."""
    rows = [
        (package.name, package.version, ", ".join(f"`{one}`" for one in left))
        for package in chosen.packages
        if (left := [one.target for one in package.trials if stored.of(one) is None])
    ]
    return table(["package", "version", "targets"], rows) if rows else ["None."]


def _row(place: int | str, trial: Trial, answer: Answer, survey: Survey) -> tuple[object, ...]:
    return (
        place,
        f"{trial.package.name} {trial.package.version}",
        f"`{trial.target}`",
        answer.verdict.value if answer.verdict is Verdict.PASS else f"**{answer.verdict.value}**",
        answer.programs,
        round(answer.seconds),
        _said(answer, survey),
    )


def _said(answer: Answer, survey: Survey) -> str:
    """The findings with what was found out about them, each reason once; or why there is no verdict."""
    by_reason: dict[str, list[str]] = {}
    for fault in answer.failing:
        reading = survey.reading_of(answer.package, answer.target, fault.id)
        # A file of the package, which may have folders of this project's names.
        file = f"{answer.package}/{fault.place}" if "/" in fault.place else fault.place
        place = f" at {as_text(file)}" if file else ""
        by_reason.setdefault(_told(reading), []).append(f"`{as_text(fault.id)}`{place}")
    said = [f"{_listed(names)}. {reason}" for reason, names in by_reason.items()]
    # Which programs of the host ran is for whoever sees the output as well.
    lines = [line.strip().partition("; only programs of this machine ran")[0] for line in answer.reason.splitlines()]
    # The status says less than the message that came with it.
    lines = [line for line in lines if line.startswith("error: ")][:1] or lines
    if not said and (reading := survey.reading_of(answer.package, answer.target, "")) and lines:
        # It says in a sentence what the message says at length.
        said, lines = [_told(reading)], [line for line in lines if len(line) <= LONGEST_LINE]
    return " <br> ".join([*said, *(f"{as_text(line).rstrip('.')}." for line in lines)])


def _listed(names: list[str]) -> str:
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _told(reading: Reading | None) -> str:
    if reading is None:
        return UNREAD
    cause = f"[{CAUSES[reading.cause]}](#{reading.link})" if reading.link else CAUSES[reading.cause]
    return f"{cause}: {as_text(reading.because)}"


def thread_rows(chosen: PackageList, stored: Answers, survey: Survey) -> list[str]:
    """The public reports about packages of the list, and whether the survey has shown what they say."""
    packages = {one.name: one for one in chosen.packages}
    rows = [
        (thread.link, named.name, as_text(thread.about), *_shown(thread, packages[named.name], stored, survey))
        for named in survey.named
        for thread in named.threads
    ]
    return table(["thread", "package", "what it is about", "verdict", "where"], rows)


def _shown(thread: Thread, package: Package, stored: Answers, survey: Survey) -> tuple[str, str]:
    """The verdict about a report, and where findings show it, by hand only if the survey does not; else the targets
    that ran.
    """
    answers = [answer for trial in package.trials if (answer := stored.of(trial))]
    places = [
        f"`{answer.target}` {as_text(fault.place)}".strip()
        for answer in answers
        for fault in answer.failing
        if (reading := survey.reading_of(package.name, answer.target, fault.id)) and reading.thread == thread.name
    ]
    if places:
        return "reproduced", ", ".join(dict.fromkeys(places))
    if thread.by_hand:
        shown = (one.partition(" ") for one in thread.by_hand)
        told = ", ".join(f"`{target}` {as_text(place)}" for target, _, place in shown)
        return f"reproduced [by hand](PROGRAMS.md#{thread.section})", told
    ran = ", ".join(f"`{one.target}`" for one in answers if one.verdict is not Verdict.UNKNOWN)
    return ("not seen", ran) if ran else ("its tests did not run" if answers else "not run yet", "")


def tables(
    chosen: PackageList | None = None, stored: Answers | None = None, survey: Survey | None = None
) -> dict[str, Callable[[], list[str]]]:
    """The tables by their marks, of the stored data by default: `threads` is of docs/upstream-threads.md, the others
    are of docs/PROGRAMS.md.
    """
    packages, answers, written = chosen or document.chosen(), stored or document.read(), survey or document.survey()
    return {
        "survey": lambda: state(packages, answers, written),
        "threads": lambda: thread_rows(packages, answers, written),
        "packages": lambda: package_rows(packages, answers, written),
        "untried": lambda: untried_rows(packages, answers),
    }
