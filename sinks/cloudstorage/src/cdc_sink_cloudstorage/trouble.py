"""What went wrong at a store, told to a person."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.errors import ConfigError, RetryableSinkError, TerminalSinkError

__all__ = ["Trouble"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A reason, as it follows "because", and what to do about it.

    While a changefeed is set up every trouble is the user's to mend. Afterwards only what is `hopeless` ends it: keys
    can be given their rights back, a service its network, and a bucket can be made again.
    """

    reason: str
    remedy: str
    hopeless: bool = False

    def as_refusal(self, shown: str) -> ConfigError:
        """Return the error to raise by `check` of the sink *shown*."""
        return ConfigError(f"sink {shown} cannot be used because {self.reason}: {self.remedy}")

    def as_failure(self, place: str) -> RetryableSinkError | TerminalSinkError:
        """Return the error to raise when *place* could not be written."""
        kind = TerminalSinkError if self.hopeless else RetryableSinkError
        return kind(f"cannot write {place} because {self.reason}: {self.remedy}")
