"""A page in a real browser, headless Chromium: the rendered document, and the browser's complaints."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest

from harness.build.host_packages import BROWSER_PACKAGE, BROWSERS
from harness.core.processes import process

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BROWSER_SECONDS = 120
VIRTUAL_MS = 20_000
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--enable-logging=stderr",
]
DESKTOP, PHONE = (1280, 900), (390, 844)
LOOKS = [
    pytest.param(
        size,
        dark,
        id=f"{name}-{'dark' if dark else 'light'}",
        # A width and a scheme each, together in two.
        marks=[] if dark == (name == "phone") else pytest.mark.slow,
    )
    for name, size in (("desktop", DESKTOP), ("phone", PHONE))
    for dark in (False, True)
]
"""Windows and schemes of colours, of which `ci/test` takes two: a light desktop and a dark phone."""


def installed_browser(names: Sequence[str] = BROWSERS) -> str:
    """The path of the first of these browsers that is installed. Without one, the test fails with what to install."""
    browser = next((path for name in names if (path := shutil.which(name))), None)
    if browser is None:
        pytest.fail(f"no browser: apt-get install --no-install-recommends {BROWSER_PACKAGE}")
    return browser


def look(
    page: Path | str, *, size: tuple[int, int] = DESKTOP, dark: bool = False, shot: Path | None = None
) -> tuple[str, list[str]]:
    """The rendered document, and the console's lines. With `shot`, a screenshot of the window and no document.

    A page given as an address may load parts of itself later. A budget of virtual time lets its timers and requests
    end.
    """
    scheme = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
    result = ["--dump-dom"] if shot is None else [f"--screenshot={shot}"]
    address = [f"--virtual-time-budget={VIRTUAL_MS}", page] if isinstance(page, str) else [page.resolve().as_uri()]
    with tempfile.TemporaryDirectory(prefix="plumb-browser-") as profile:
        command = [installed_browser(), *OPTIONS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"]
        ended = process.run(
            [*command, *scheme, *result, *address],
            deadline_seconds=BROWSER_SECONDS,
            environment={**os.environ, "HOME": profile},
        )
    assert ended.code == 0, ended.text
    console = re.findall(r"^\[\S+:CONSOLE:\d+\] (.*)$", ended.text, re.MULTILINE)
    document = "\n".join(line for line in ended.text.splitlines() if not re.match(r"\[\d+/\d+\.\d+:[A-Z]+:", line))
    return document, console
