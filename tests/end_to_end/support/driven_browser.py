"""A browser that a test drives as a person would: a window of any width, keys, a click, a printer.

Selenium drives it through Debian's ChromeDriver. Both programs are named by their paths, because Selenium would
otherwise look for a driver on the network. tests.end_to_end.support.browser is enough for a test without input.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, Self

import pytest
from selenium.webdriver import ActionChains, Chrome, ChromeOptions, ChromeService, Keys

from harness.build.host_packages import BROWSER_DRIVER, BROWSER_PACKAGE, DRIVEN_BROWSERS
from tests.end_to_end.support.browser import BROWSER_SECONDS, DESKTOP, OPTIONS, installed_browser

if TYPE_CHECKING:
    from pathlib import Path

_KEYS = {"Tab": Keys.TAB, "Enter": Keys.ENTER, " ": Keys.SPACE, "ArrowRight": Keys.ARROW_RIGHT}


class DrivenBrowser:
    """A browser with one window. It is a context manager that ends the browser."""

    def __init__(self) -> None:
        driver = shutil.which(BROWSER_DRIVER)
        if driver is None:
            pytest.fail(f"no {BROWSER_DRIVER}: apt-get install --no-install-recommends {BROWSER_PACKAGE}")
        options = ChromeOptions()
        options.binary_location = installed_browser(DRIVEN_BROWSERS)
        with contextlib.ExitStack() as ends:
            profile = ends.enter_context(tempfile.TemporaryDirectory(prefix="plumb-browser-"))
            for option in (*OPTIONS, f"--user-data-dir={profile}", "--remote-debugging-pipe"):
                options.add_argument(option)
            # Over a pipe, a browser ends with its driver, even with a killed one. Temporary files of both programs are
            # removed with the profile.
            environment = {**os.environ, "HOME": profile, "TMPDIR": profile}
            self._driver = Chrome(options=options, service=ChromeService(driver, env=environment))
            ends.callback(self._driver.quit)
            self._driver.set_page_load_timeout(BROWSER_SECONDS)
            self._driver.set_script_timeout(BROWSER_SECONDS)
            self._ends = ends.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def _emulate(self, what: str, **parameters: Any) -> None:
        """Set what WebDriver has no command for."""
        self._driver.execute_cdp_cmd(f"Emulation.{what}", parameters)

    def open(self, page: Path, *, size: tuple[int, int] = DESKTOP, dark: bool = False, fragment: str = "") -> None:
        """Load a page into a window of this size, and wait until it is loaded."""
        # A window is at least 500 pixels wide; a telephone is not.
        self._emulate("setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        # With this setting a link shows its target at once, not some frames later.
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self._emulate("setEmulatedMedia", media="", features=[scheme, still])
        # The browser would not reload the same page for a different fragment.
        self._driver.get("about:blank")
        self._driver.get(f"{page.resolve().as_uri()}{f'#{fragment}' if fragment else ''}")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, whose own policy forbids scripts."""
        return self._driver.execute_script(f"return {expression}")

    def press(self, *keys: str) -> None:
        """Press keys and release them, one after another."""
        actions = ActionChains(self._driver)
        for key in keys:
            actions.send_keys(_KEYS[key])
        actions.perform()

    def printed(self) -> None:
        """Show the page as a printer would get it, from now on."""
        self._emulate("setEmulatedMedia", media="print")
