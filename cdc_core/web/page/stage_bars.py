"""Where the time of tasks goes, as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cdc_core.telemetry.stages import STAGES
from cdc_core.web.page.texts import share_text

__all__ = ["Segment", "StageBar", "stage_bar"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One stage in a bar: where it begins and how wide it is, in percent of the bar."""

    stage: str
    x: str
    width: str
    share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBar:
    """A bar of segments, and the same in words. Without segments nothing was measured lately."""

    segments: Sequence[Segment]
    text: str


def stage_bar(shares: Mapping[str, float]) -> StageBar:
    """Return the bar of *shares*, by stage, in the order in which a row passes the stages."""
    segments, x = [], 0.0
    for stage in STAGES:
        share = shares.get(stage, 0.0)
        if share >= 0.001:
            segments.append(
                Segment(stage=stage, x=f"{x * 100:.1f}%", width=f"{share * 100:.1f}%", share=share_text(share))
            )
        x += share
    text = ", ".join(f"{segment.stage} {segment.share}" for segment in segments)
    return StageBar(segments=segments, text=text or "nothing was delivered lately")
