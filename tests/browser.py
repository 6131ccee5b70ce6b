"""A headless Chromium, driven over pipes by its own protocol (Chrome DevTools Protocol)."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

_IS_LOADED = "location.href !== 'about:blank'"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


TIMEOUT = 60.0  # seconds for a reply


def find_browser() -> str | None:
    return next(filter(_runs, filter(None, map(shutil.which, NAMES))), None)


def _runs(path: str) -> bool:
    """Return whether a browser starts: it may lack its libraries, or only say how to install it."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, timeout=TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class Browser:
    """One page of a browser; `errors` are those of its scripts and of its console."""

    def __init__(self) -> None:
        found = find_browser()
        if found is None:
            pytest.skip("no Chromium: apt-get install chromium, or a browser of its family")
        self._profile = tempfile.TemporaryDirectory(prefix="browser", ignore_cleanup_errors=True)
        options = [
            *("--headless", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars"),
            *("--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking"),
            f"--user-data-dir={self._profile.name}",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()  # pytest has files open: these are beyond 4

        def place() -> None:  # the browser expects its pipes at these numbers
            for fd, number in ((theirs_in, 3), (theirs_out, 4)):
                os.dup2(fd, number)

        self._process = subprocess.Popen(
            [found, *options], preexec_fn=place, pass_fds=(3, 4), stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = os.fdopen(ours_in, "rb"), os.fdopen(ours_out, "wb")
        self._pending = b""
        self._id = 0
        self._session: str | None = None
        self.errors: list[str] = []
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._in.close()
        self._out.close()
        self._profile.cleanup()

    def open(self, url: str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Load a page in a window of some CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        until = time.monotonic() + TIMEOUT
        while not self.evaluate(f"document.readyState === 'complete' && {_IS_LOADED}"):
            assert time.monotonic() < until, f"the browser does not load {url}"
            time.sleep(0.05)

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Write the page, as far as the window shows it, as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        message = {"id": self._id, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while (reply := self._read()).get("id") != self._id:
            pass
        assert "error" not in reply, reply
        result: dict[str, Any] = reply["result"]
        return result

    def _read(self) -> dict[str, Any]:
        """Return the next message; keep the errors among events."""
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._in], [], [], TIMEOUT)
            assert ready, "the browser does not respond"
            piece = os.read(self._in.fileno(), 1 << 16)
            assert piece, "the browser has ended"
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(json.dumps(params["entry"]))
        return message
