"""A headless Chromium for tests of what a user sees, and what its pages say and ask for."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="`make test-all` installs playwright")
from playwright.sync_api import BrowserContext, Page, sync_playwright

SHOTS = Path(__file__).parents[1] / "runs" / "browser"
PATIENCE = 30_000  # milliseconds
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
MISSING = "Chromium is missing; `make test-all` installs it, by hand: apt-get install --no-install-recommends chromium"


@contextmanager
def chromium(profile: Path, **options: Any) -> Iterator[BrowserContext]:
    """The system's Chromium with a profile of its own; fails, and does not skip, where there is none."""
    program = shutil.which("chromium")
    if program is None:
        pytest.fail(MISSING)
    SHOTS.mkdir(parents=True, exist_ok=True)
    options = {"viewport": {"width": 1600, "height": 1000}, **options}
    with sync_playwright() as driver:
        window = driver.chromium.launch_persistent_context(
            profile, executable_path=program, args=FLAGS, timeout=PATIENCE, **options
        )
        window.set_default_timeout(PATIENCE)
        yield window
        window.close()


class Watch:
    """What a page says on its console, which errors it has, and what it asks the network for."""

    def __init__(self, page: Page) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url.split("#")[0]))

    def check(self, address: str) -> None:
        """The page was silent and asked for nothing but itself, pictures in its own text and blobs apart."""
        assert self.said == []
        assert {url for url in self.asked if not url.startswith(("data:", "blob:"))} == {address}


def width_of(page: Page) -> int:
    """How wide the page is; wider than the window means that something sticks out sideways."""
    found: int = page.evaluate("document.documentElement.scrollWidth")
    return found
