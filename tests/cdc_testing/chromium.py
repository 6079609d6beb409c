"""A real browser, and what it complains about."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

_NOTE_TOUCHED = """
window.touched = { lines: {}, replaced: 0 };
document.addEventListener("DOMContentLoaded", () => {
  const body = document.querySelector("tbody");
  if (body !== null) new MutationObserver((records) => {
    for (const record of records) {
      const element = record.target.nodeType === Node.ELEMENT_NODE ? record.target : record.target.parentElement;
      const line = element.closest("tr");
      if (line !== null) window.touched.lines[line.id] = true;
      for (const node of [...record.addedNodes, ...record.removedNodes])
        window.touched.replaced += /^T[RHD]$/.test(node.nodeName);
    }
  }).observe(body, { subtree: true, childList: true, characterData: true, attributes: true });
});
"""

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_SERIOUS = ("serious", "critical")
_LIMIT_MS = 120_000


def find_chromium() -> str | None:
    """Return the path of Chromium; None when there is none. `.ci/chromium` installs one."""
    named = os.environ.get("CDC_CHROMIUM")
    return named or next(filter(None, map(shutil.which, _PROGRAMS)), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium without a window."""
    expect.set_options(timeout=_LIMIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox", "--disable-lcd-text"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page of a browser in one theme. Keeps every complaint: of the console, of scripts, of requests that failed."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        theme: Literal["dark", "light"] = "light",
        *,
        size: tuple[int, int] = (1280, 800),
    ) -> None:
        width, height = size
        self.context = browser.new_context(
            base_url=url, color_scheme=theme, viewport={"width": width, "height": height}, reduced_motion="reduce"
        )
        self.context.set_default_timeout(_LIMIT_MS)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(f"{self.page.url}: {error}"))

    def open(self, path: str) -> Page:
        """Go to *path*, and wait until the page is up to date if it keeps itself so."""
        self.page.goto(path)
        if self.page.locator("[data-live]").count():
            self.page.wait_for_selector("[data-state=live]")
        return self.page

    def note_touched(self) -> None:
        """From the next page on, note what happens to the first table of a page: see `touched`."""
        self.page.add_init_script(_NOTE_TOUCHED)

    def touched(self) -> tuple[set[str], int]:
        """Return the ids of the lines in which anything has changed, and how many lines and cells came or went."""
        found = self.page.evaluate("window.touched")
        return set(found["lines"]), found["replaced"]

    def barriers(self) -> list[str]:
        """Return what axe finds serious about the page as it is: what keeps people out."""
        found: Mapping[str, Any] = Axe().run(self.page).response
        return [
            f"{self.page.url}: {each['id']}: {each['help']}: {node['html']}"
            for each in found["violations"]
            if each["impact"] in _SERIOUS
            for node in each["nodes"]
        ]

    def close(self) -> None:
        self.context.close()

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{self.page.url}: {message.text}")
