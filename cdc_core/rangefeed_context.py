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
    """The values from which every part of a rangefeed is created. Picklable."""

    changefeed: str
    feed_id: str
    """Random identity of the changefeed, chosen once and saved: 12 hexadecimal digits. Use it in the names of
    everything that you create.
    """
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
    """Overrides `initial_scan` for tables that were added to a running changefeed. Only for `Rangefeed.start`."""
    saved: Token | None = None
    """The token saved last before this run; None before the first start, and when the history starts over. It is for
    `check`, `check_rescan` and `move`, and for a `SourceHistory` that only measures.
    """
    cursor: str | None = None
    """Where the changefeed starts instead of now: a timestamp in its text form, or a position in the source's form."""
    schema_changes: SchemaChangeRules = field(default_factory=SchemaChangeRules)
    """What the planner does at a schema boundary."""
    placement: PlacementRules = field(default_factory=PlacementRules)
    """For a registration with `replicas`: which node of the source to read each span on; call its `assign`."""
    parallelism: int = 1
    """How many slices can be read at the same time."""
    locality: Locality = field(default_factory=Locality)
    """Where the changefeed is coordinated, for choosing a nearby replica; without tiers if this is unknown."""
    restriction: Callable[[TableSchema], Restriction] = unrestricted
    """Which columns and rows of a version of a table the changefeed's query uses. A scan may leave out the rest: it may
    yield nulls in other columns, and omit rows for which a comparison does not hold. Changes have all columns, and may
    be left out only where a comparison in `of_changes` is false for their key.
    """
    temporary: bool = False
    """Whether nothing may remain at the source, as in a run of `cdc watch` or `cdc preview`. All four parts are then in
    one process, and one thread uses them. What `start` creates must end with `Rangefeed.close` or with the process,
    whichever comes first, so tie it to a connection. `drop` is never called. After a failure, `start` gets the token of
    the last step that was read completely; if what was created is gone, `start` raises HistoryLostError, because
    starting over would leave a gap.
    """
