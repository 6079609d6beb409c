"""A base for saboteurs with their own file bodies."""

from __future__ import annotations

from typing import ClassVar

from cdc_conformance.reference.encoder import ReferenceEncoder
from cdc_core import FileBody, NewlineBody

__all__ = ["WithOwnBody"]


class WithOwnBody(ReferenceEncoder):
    """Opens bodies of the class `Body`."""

    Body: ClassVar[type[NewlineBody]] = NewlineBody

    def open_body(self, topic: str) -> FileBody:
        return self.Body(lambda rows: self.encode(rows, topic=topic).value)
