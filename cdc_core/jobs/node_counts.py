"""What a node counts while its process lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from cdc_core.jobs.settings import NodeSettings
from cdc_core.store.job_values import Adoption
from cdc_core.telemetry import metrics
from cdc_core.telemetry.metrics import Sample

__all__ = ["NodeCounts"]


@dataclass(slots=True)
class NodeCounts:
    """Counts of the node with these settings. The node's thread writes them; any thread may read."""

    settings: NodeSettings
    adoptions: int = 0
    failovers: int = 0
    lost_sessions: int = 0
    expired: int = 0

    def adopted(self, job: Adoption) -> None:
        """Count a job that the node has claimed."""
        self.adoptions += 1
        self.failovers += not job.clean

    def samples(self) -> Sequence[Sample]:
        settings = self.settings
        return (
            Sample(metrics.NODE_INFO, 1, (settings.name, version("cdc-core"), settings.locality)),
            Sample(metrics.NODE_ADOPTIONS, self.adoptions),
            Sample(metrics.NODE_FAILOVERS, self.failovers),
            Sample(metrics.NODE_SESSIONS_LOST, self.lost_sessions),
            Sample(metrics.NODE_EXPIRED, self.expired),
        )
