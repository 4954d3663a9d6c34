"""Opens pages in a headless Chromium, where there is one."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

FIXED = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
    "--enable-logging=stderr", "--virtual-time-budget=6000",
)  # fmt: skip


def browser() -> str:
    """A Chromium, or a skip."""
    for name in ("chromium", "chromium-browser", "google-chrome", "headless_shell"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium on this machine (apt-get install chromium)")


def open_page(chromium: str, address: str, profile: Path) -> tuple[str, list[str]]:
    """The page's document after its scripts have run, and the lines of its console that are errors."""
    flags = [*FIXED, f"--user-data-dir={profile / 'profile'}", "--dump-dom"]
    done = subprocess.run([chromium, *flags, address], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    errors = [
        line for line in done.stderr.splitlines() if "CONSOLE" in line and re.search(r"rror|refused|Refused", line)
    ]
    return done.stdout, errors


class Tab:
    """A page in a Chromium that is driven over a pipe: real keys, any window size, light or dark, screenshots.

    The messages are those of the Chrome DevTools Protocol, JSON with a zero byte behind each.
    """

    def __init__(self, chromium: str, address: str, profile: Path, width: int = 1440, height: int = 900) -> None:
        self.errors: list[str] = []
        self._sent, self._held = 0, b""
        # Chromium puts a socket there, whose path may have 107 bytes: the folders of tests are too deep
        self._temporary = tempfile.mkdtemp(prefix="tab-", dir="/tmp")
        theirs, self._write = os.pipe()
        self._read, answers = os.pipe()
        flags = [*FIXED[:5], "--remote-debugging-pipe", f"--user-data-dir={profile / 'profile'}", "about:blank"]
        start = f'exec "$@" 3<&{theirs} 4>&{answers}'  # Chromium reads messages from 3 and answers on 4
        self._process = subprocess.Popen(
            ["bash", "-c", start, "bash", chromium, *flags],
            pass_fds=(theirs, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": self._temporary},
        )
        os.close(theirs)
        os.close(answers)
        try:
            self._begin(address, width, height)
        except BaseException:
            self.close()
            raise

    def _begin(self, address: str, width: int, height: int) -> None:
        target = self._call("Target.createTarget", {"url": "about:blank"}, session="")["targetId"]
        attached = {"targetId": target, "flatten": True}
        self._session = self._call("Target.attachToTarget", attached, session="")["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self._call(f"{domain}.enable")
        self.resize(width, height)
        self.open(address)

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and remove its files."""
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _call(self, method: str, given: dict[str, Any] | None = None, session: str | None = None) -> Any:
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": given or {}}
        if session != "":
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._answer()
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                return answer["result"]

    def _answer(self) -> dict[str, Any]:
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._read], [], [], 60)
            assert ready, "the browser does not answer"
            more = os.read(self._read, 1 << 20)
            assert more, "the browser has ended"
            self._held += more
        text, _, self._held = self._held.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        about, given = answer.get("method"), answer.get("params", {})
        if about == "Runtime.exceptionThrown":
            self.errors.append(str(given["exceptionDetails"]))
        elif about == "Runtime.consoleAPICalled" and given["type"] in ("error", "assert"):
            self.errors.append(str(given["args"]))
        elif about == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.errors.append(given["entry"]["text"])
        return answer

    def open(self, address: str) -> None:
        """Go to an address and wait until the page is loaded (its own script has then run)."""
        self._call("Page.navigate", {"url": "about:blank"})
        self._call("Page.navigate", {"url": address})
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'")

    def wait(self, condition: str) -> None:
        """Wait until an expression holds; at most half a minute."""
        for _ in range(600):
            if self.run(condition):
                return
            time.sleep(0.05)
        raise AssertionError(f"never: {condition}")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        given = {"expression": script, "returnByValue": True, "awaitPromise": True}
        found = self._call("Runtime.evaluate", given)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key of the keyboard, down and up ("Escape", 27)."""
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self._call("Input.dispatchKeyEvent", {"type": "keyDown", **about, **({"text": text} if text else {})})
        self._call("Input.dispatchKeyEvent", {"type": "keyUp", **about})

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """The size of the window in pixels, and what the reader prefers."""
        about = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self._call("Emulation.setDeviceMetricsOverride", about)
        prefers = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", {"media": "", "features": prefers})

    def picture(self, file: Path) -> None:
        """A screenshot of the window as PNG."""
        file.write_bytes(b64decode(self._call("Page.captureScreenshot", {"format": "png"})["data"]))

    def pdf(self, file: Path) -> None:
        """The page as it is printed."""
        file.write_bytes(b64decode(self._call("Page.printToPDF", {"printBackground": False})["data"]))
