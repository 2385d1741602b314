"""A browser that a test drives as a person would: a window of any width, keys, a click, a printer.

It uses the DevTools protocol over a pipe: JSON messages that end with a zero byte, on the browser's file descriptors 3
and 4 (Chromium's --remote-debugging-pipe). tests.end_to_end.browser is enough for a test without input.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, Self

import pytest

from harness.build.host_packages import BROWSER_PACKAGE, BROWSERS
from tests.end_to_end.browser import BROWSER_SECONDS, DESKTOP, OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

_KEYS = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39, "ArrowDown": 40}
_TEXTS = {"Enter": "\r", " ": " "}


class DrivenBrowser:
    """A browser with one window. It is a context manager that ends the browser."""

    def __init__(self) -> None:
        found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
        if found is None:
            pytest.fail(f"no browser: apt-get install --no-install-recommends {BROWSER_PACKAGE}")
        self._ends = contextlib.ExitStack()
        profile = self._ends.enter_context(tempfile.TemporaryDirectory(prefix="plumb-browser-"))
        (to_read, self._out), (self._in, to_write) = os.pipe(), os.pipe()
        words = [found, *OPTIONS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        # Python chooses the numbers of its descriptors, but the protocol requires these two.
        script = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["timeout", "--kill-after=5", str(BROWSER_SECONDS), "bash", "-c", script, "bash", *words],
            pass_fds=(to_read, to_write),
            env={**os.environ, "HOME": profile},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (to_read, to_write):
            os.close(end)
        self._buffer = b""
        self._number = 0
        self._session = ""
        self._events: list[str] = []

    def __enter__(self) -> Self:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._session = ""
        with contextlib.suppress(AssertionError, OSError):
            # A killed browser leaves processes that still write to its profile.
            self.call("Browser.close")
        self._process.wait(BROWSER_SECONDS)
        for end in (self._out, self._in):
            os.close(end)
        self._ends.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": parameters, **session}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._events.append(answer.get("method", ""))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._in, 1 << 16)
            assert more, "the browser ended"
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        read: dict[str, Any] = json.loads(message)
        return read

    def open(self, page: Path, *, size: tuple[int, int] = DESKTOP, dark: bool = False, fragment: str = "") -> None:
        """Load a page into a window of this size, and wait until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        # With this setting a link shows its target at once, not some frames later.
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme, still])
        # The browser would not reload the same page for a different fragment.
        for address in ("about:blank", f"{page.resolve().as_uri()}{f'#{fragment}' if fragment else ''}"):
            self._events.clear()
            self.call("Page.navigate", url=address)
            while "Page.loadEventFired" not in self._events:
                self._events.append(self._read().get("method", ""))

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, whose own policy forbids scripts."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in done, f"{expression}: {done['exceptionDetails']}"
        return done["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press keys and release them, one after another."""
        for key in keys:
            about = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": _KEYS[key]}
            text = {"text": _TEXTS[key]} if key in _TEXTS else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **about, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def printed(self) -> None:
        """Show the page as a printer would get it, from now on."""
        self.call("Emulation.setEmulatedMedia", media="print")

    def shot(self, path: Path, *, whole: bool = False) -> None:
        """Take a screenshot of the window, or of the whole page."""
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))
