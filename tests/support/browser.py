"""A real browser for tests: chromium without a window, driven over a pipe by its own protocol (CDP).

with Browser(scratch) as browser:
    page = browser.open(path, width=360, is_dark=True)
    page.evaluate("document.title")
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.patience import PATIENCE_S

_ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Browser:
    """A chromium for the length of a `with` block. `scratch` holds its profile."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._number = 0
        self._received = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        to_browser, self._out = map(_high, os.pipe())
        self._in, from_browser = map(_high, os.pipe())

        def connect() -> None:
            # Chromium reads from descriptor 3 and writes to descriptor 4.
            os.dup2(to_browser, 3)
            os.dup2(from_browser, 4)

        self._process = subprocess.Popen(
            ["chromium", *_ARGUMENTS, f"--user-data-dir={self._scratch / 'profile'}", "about:blank"],
            pass_fds=(3, 4),
            preexec_fn=connect,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.call("Browser.close")
        os.close(self._out)
        os.close(self._in)
        self._process.wait(PATIENCE_S)

    def call(self, method: str, *, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        answer = self._next(lambda each: each.get("id") == self._number)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, method: str) -> None:
        """Wait for an event."""
        self._next(lambda each: each.get("method") == method)

    def _next(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            while b"\0" in self._received:
                text, _, self._received = self._received.partition(b"\0")
                message: dict[str, Any] = json.loads(text)
                if "method" in message:
                    self.events.append(message)
                if is_wanted(message):
                    return message
            if select.select([self._in], [], [], 1)[0]:
                read = os.read(self._in, 1 << 20)
                assert read, "chromium has ended"
                self._received += read
        raise TimeoutError("chromium does not answer")

    def open(self, file: Path, *, width: int, height: int = 900, is_dark: bool = False, media: str = "") -> Page:
        """Open a file in a new tab of a width, in light or dark, or as it is printed."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Network", "Log", "Runtime"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        page.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.events.clear()
        page.call("Page.navigate", url=file.as_uri())
        self.wait_for("Page.loadEventFired")
        return page


def _high(descriptor: int) -> int:
    """Return another number for a descriptor, above those that the browser uses."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


class Page:
    """A tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command to the tab and return its result."""
        return self._browser.call(method, session=self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in JavaScript."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def requests(self) -> list[str]:
        """Return the addresses that the page has asked for since it was opened."""
        sent = [each for each in self._browser.events if each["method"] == "Network.requestWillBeSent"]
        return [each["params"]["request"]["url"] for each in sent]

    def complaints(self) -> list[str]:
        """Return the messages of the console since the page was opened."""
        methods = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [json.dumps(each["params"]) for each in self._browser.events if each["method"] in methods]

    def screenshot(self, *, height: int | None = None, scale: float = 1.0) -> bytes:
        """Return a picture of the page as PNG, of all of it or of its top."""
        size = self.evaluate("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": height or size[1], "scale": scale}
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(taken["data"])

    def pdf(self) -> bytes:
        """Return the page as it is printed on A4."""
        printed = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        return base64.b64decode(printed["data"])
