"""Writes the pictures of the page, in both themes, below docs/images. Needs Chromium (`.ci/chromium`).

PYTHONPATH=tests python docs/screenshots.py
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from cdc_testing.chromium import Watched, chromium
from cdc_testing.page_rig import Shown, deployment, served
from playwright.sync_api import Browser

from cdc_core.store.progress import ProgressStore, store_url

IMAGES = Path(__file__).parent / "images"
SECONDS = 45
"""How long the charts have been drawn when they are pictured."""
VIEWS = {"overview": ("/ui", 620), "changefeed": ("/ui/changefeeds/eu-shipments", 840)}
THEMES: Sequence[Literal["dark", "light"]] = ("light", "dark")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        store = ProgressStore(store_url(Path(directory)))
        shown = Shown(store)
        names, over = shown.many(12), threading.Event()
        deliver = threading.Thread(target=shown.deliver, args=(names, over))
        deliver.start()
        try:
            with served(deployment(store)) as server, chromium() as browser:
                picture(browser, server.url)
        finally:
            over.set()
            deliver.join()
            store.close()


def picture(browser: Browser, url: str) -> None:
    """Look at a changefeed until its charts are full, and picture each view."""
    watched = [
        (f"{name}-{theme}.png", Watched(browser, url, theme, size=(1260, height)), path)
        for name, (path, height) in VIEWS.items()
        for theme in THEMES
    ]
    for _, view, path in watched:
        view.open(path)
    watched[0][1].page.wait_for_timeout(SECONDS * 1000)
    for file, view, _ in watched:
        view.page.screenshot(path=IMAGES / file)
        assert view.complaints == []


if __name__ == "__main__":
    main()
