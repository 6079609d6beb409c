"""What a component logs while it is checked."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from cdc_core.registrations import Registration


class _Notes(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def notes_of(component: Registration) -> Iterator[list[str]]:
    """Yield a list that fills with what the component's package logs inside the block, at INFO or above."""
    place = getattr(component, component.CLASSES[0])
    logger, notes = logging.getLogger(place.partition(":")[0].partition(".")[0]), _Notes()
    level = logger.level
    logger.addHandler(notes)
    logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
    try:
        yield notes.texts
    finally:
        logger.setLevel(level)
        logger.removeHandler(notes)
