"""What the parts of a rangefeed are built from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc_core.locality import Locality
from cdc_core.placement import PlacementRules
from cdc_core.rangefeed_values import Token
from cdc_core.restriction import Restriction, unrestricted
from cdc_core.schema import TableSchema
from cdc_core.schema_change import SchemaChangeRules


@dataclass(frozen=True, slots=True, kw_only=True)
class RangefeedContext:
    """What every part of a rangefeed is built from. Picklable."""

    changefeed: str
    feed_id: str
    """Random identity of the changefeed, chosen once and saved: 12 hexadecimal digits. Use it in the names of all that
    you create."""
    uri: str = field(repr=False)
    """URI of the source, secrets included."""
    tables: tuple[str, ...]
    """Tables to watch, as the user wrote them: names, or patterns if the source has them."""
    options: Any
    """An instance of the registered options class."""
    diff: bool = False
    """Whether the user wants `before`."""
    mvcc: bool = False
    """Whether the user wants `mvcc`."""
    initial_scan: bool = True
    """Whether the user wants the rows that exist at the start."""
    initial_scans: Mapping[str, bool] = field(default_factory=dict)
    """The same for tables that join a running changefeed, where it differs. Only `Rangefeed.start` needs it."""
    saved: Token | None = None
    """The token saved last before this run; None before the first start, and when the history starts over. For `check`,
    `check_rescan` and `move`, and for a `SourceHistory` that only measures."""
    cursor: str | None = None
    """Where the changefeed starts instead of now: the text form of a timestamp, or a position of the source's own."""
    schema_changes: SchemaChangeRules = field(default_factory=SchemaChangeRules)
    """What the planner does at a schema boundary."""
    placement: PlacementRules = field(default_factory=PlacementRules)
    """Which nodes of the source read what, for a registration with `replicas`: `assign` carries it out."""
    parallelism: int = 1
    """How many slices can be read at the same time."""
    locality: Locality = field(default_factory=Locality)
    """Where the changefeed is coordinated, to choose a close replica by; without tiers where that is unknown."""
    restriction: Callable[[TableSchema], Restriction] = unrestricted
    """Which columns and rows of a version of a table the changefeed's query uses. A scan may leave out the rest: nulls
    in other columns, no rows for which a comparison does not hold. Changes have all columns, and may be left out only
    where a comparison in `of_changes` is false for their key."""
    temporary: bool = False
    """Whether nothing may remain at the source: a run of `cdc watch` or `cdc preview`. All four parts live in one
    process and are used by one thread. What `start` creates ends with `Rangefeed.close` or the process, whichever comes
    first, so tie it to a connection. `drop` is never called. After a failure, `start` gets the token of the last step
    that was read to its end; if what was created is gone, it raises HistoryLostError, as to start over would leave a
    gap."""
