"""How a topic that a query gives to rows becomes one of the changefeed's: the sink accepts it, the store keeps it.

The order is fixed: the destination can take the topic, then the store has it, durably and under the attempt's epoch,
then its first row may be delivered. Whatever dies in between, every topic that has rows is in the store, and so gets
all later resolved marks, although a later attempt may never give that topic again: a scan that begins anew reads newer
rows. The other way round is harmless: a topic without rows gets marks, or was created and stays empty.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cdc_core.sink import Sink

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

__all__ = ["TopicAdmission"]

_MAX_REFUSED = 10_000
_ASK_AGAIN_S = 30.0
"""How long a refusal holds: the user may get a missing right, or someone may create the topic."""


class TopicAdmission:
    """The topics that attempt *epoch* of changefeed *name* may write, as far as one process knows them.

    A topic costs one call of each sink and one of the store, not one for each batch; one that was refused costs a call
    of the sink again after half a minute. *most* is what max_topics allows. *clock* returns seconds.
    """

    def __init__(
        self,
        store: ProgressStore,
        *,
        name: str,
        epoch: int,
        most: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._name = name
        self._epoch = epoch
        self._most = most
        self._saved: set[str] | None = None
        self._clock = clock
        self._refused: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """Reasons, and when each ends, the earliest first."""
        self._admitted: WeakKeyDictionary[Sink, set[str]] = WeakKeyDictionary()

    def admit(self, topic: str, *, sink: Sink, fenced: Sink) -> str | None:
        """Return when rows can be delivered to *topic*; or the sink's reason why they cannot.

        *fenced* is *sink* as long as the attempt may emit. Raises: TerminalError when there would be too many topics;
        FencedError; RetryableError; whatever the sink raises.
        """
        admitted = self._admitted.setdefault(sink, set())
        if topic in admitted:
            return None
        now = self._clock()
        reason, ends = self._refused.get(topic, ("", now))
        if now < ends:
            return reason
        self._refused.pop(topic, None)
        if self._saved is None:
            self._saved = set(self._store.topics.of(self._name))
        if topic not in self._saved and len(self._saved) >= self._most:
            self._save(topic)  # raises, unless another process has added it
        refusal = fenced.admit(topic)
        if refusal is not None:
            self._refused[topic] = (refusal, self._clock() + _ASK_AGAIN_S)
            if len(self._refused) > _MAX_REFUSED:
                self._refused.popitem(last=False)
            return refusal
        if topic not in self._saved:
            self._save(topic)
        admitted.add(topic)
        return None

    def close(self) -> None:
        self._store.close()

    def _save(self, topic: str) -> None:
        self._saved = set(self._store.topics.add(self._name, self._epoch, topic, most=self._most))
