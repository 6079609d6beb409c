"""The overview of 100 changefeeds in Chromium: until its lines are shown, and what is replaced while it is updated."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.context import Bench
from benchmarks.report import Figure, Target
from cdc_testing.chromium import Watched, chromium, find_chromium
from playwright.sync_api import Browser

_CHANGEFEEDS = 100
_LOADS = 10
_WINDOW_MS = 10_000
_TARGET = Target(below=1.0)
_TIMES = """() => {
  const [navigation] = performance.getEntriesByType("navigation");
  const [paint] = performance.getEntriesByName("first-contentful-paint");
  return [navigation.domContentLoadedEventEnd / 1000, paint.startTime / 1000, navigation.decodedBodySize];
}"""


def run(bench: Bench) -> Iterator[Figure]:
    """Load the page again and again, with an empty cache, while 12 of the changefeeds take a step each second."""
    if find_chromium() is None:
        raise RuntimeError("Chromium is missing; .ci/chromium installs it")
    with bench.scratch("page") as scratch, _served(scratch) as url, chromium() as browser:
        loads = [_load(browser, url) for _ in range(_LOADS)]
        for what, index in (("ready", 0), ("shown", 1)):
            times = sorted(load[index] for load in loads)
            yield Figure(
                name=f"{_CHANGEFEEDS} changefeeds on the page, until its lines are {what}",
                value=median(times),
                unit="s",
                target=_TARGET,
                details={"longest_s": times[-1], "bytes": loads[0][2]},
            )
        touched, replaced = _updated(browser, url)
        yield Figure(
            name=f"lines and cells replaced in {_WINDOW_MS // 1000} s of updates",
            value=float(replaced),
            unit="nodes",
            target=Target(below=1),
            details={"lines_touched": touched},
        )


def _load(browser: Browser, url: str) -> tuple[float, float, int]:
    """Return the seconds from the start of the navigation until the page is ready, and is shown, and its size."""
    watched = Watched(browser, url)
    try:
        watched.page.goto("/ui", wait_until="domcontentloaded")
        lines = watched.page.locator("#feeds > tr")
        lines.first.wait_for(state="visible")
        if lines.count() != _CHANGEFEEDS:
            raise RuntimeError(f"the page shows {lines.count()} changefeeds")
        watched.page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
        ready_s, shown_s, size = watched.page.evaluate(_TIMES)
        return ready_s, shown_s, size
    finally:
        watched.close()


def _updated(browser: Browser, url: str) -> tuple[int, int]:
    """Return in how many lines something has changed within a while, and how many lines and cells came or went."""
    watched = Watched(browser, url)
    try:
        watched.note_touched()
        watched.open("/ui")
        watched.page.wait_for_timeout(_WINDOW_MS)
        lines, replaced = watched.touched()
        if not lines:
            raise RuntimeError("the page was not updated")
        return len(lines), replaced
    finally:
        watched.close()


@contextmanager
def _served(directory: Path) -> Iterator[str]:
    """Serve the page of changefeeds of which some take steps, in a process of its own; yield its address."""
    command = [sys.executable, "-m", "cdc_testing.page_rig", str(directory), "127.0.0.1:0", str(_CHANGEFEEDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip().removesuffix("/ui")
        finally:
            server.kill()
