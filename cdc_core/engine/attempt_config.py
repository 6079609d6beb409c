"""What every process of one attempt knows: the changefeed, where progress is stored, where the attempt starts."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_core.config.changefeed_options import MAX_DELIVERY_TASKS
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.routing import TopicAdmission
from cdc_core.engine.attempt_channel import AttemptChannel
from cdc_core.engine.fencing import EpochCheck, at_work
from cdc_core.engine.host_requirements import HostRequirements
from cdc_core.errors import CdcError, RetryableError, is_outage, to_wire
from cdc_core.masking import MaskingFilter, mask
from cdc_core.queries.bound_query import QueryPlan
from cdc_core.rangefeed_values import Token
from cdc_core.sink import Sink
from cdc_core.slice_reader import SliceReader
from cdc_core.telemetry.logs import NamingFormatter, logged_as

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

_FILTER = MaskingFilter()
"""One for all attempts of a process: what one of them leaves open may log while another one works."""


class MaskedError(RuntimeError):
    """An error on its way out of one of our processes: its text is masked and `cdc_core.errors.from_wire` reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptConfig:
    """One attempt of a changefeed. `feed` has the epoch of the attempt and the URL of the progress store.

    `state_dir` belongs to the changefeed (locks), `run_dir` to this attempt (its channel, Spark's scratch). `plans` has
    those of the query, one for each version of its table; without a query it is empty. With
    `warm_up` the processes only load what they will need.
    """

    feed: ResolvedChangefeed
    state_dir: Path
    run_dir: Path
    start: Token = field(default_factory=dict)
    warm_up: bool = False
    requirements: HostRequirements = field(default_factory=HostRequirements)
    plans: tuple[QueryPlan, ...] = ()

    def to_option(self) -> str:
        pickled = base64.b64encode(pickle.dumps(self)).decode()
        return json.dumps({"requirements": self.requirements.to_json(), "config": pickled})

    @classmethod
    @lru_cache(maxsize=16)
    def from_option(cls, option: str) -> AttemptConfig:
        """Return what `to_option` has made into *option*. Each task of a worker asks for that of its attempt.

        First see to the requirements in it: another version of this package may be unable to read the rest.
        """
        config: AttemptConfig = pickle.loads(base64.b64decode(json.loads(option)["config"]))
        return config

    def open_sink(self) -> Sink:
        """Return the sink, on a host that is as the driver's. Raises: ConfigError for another one."""
        self.requirements.require()
        return Parts(self.feed).open_sink()

    def open_reader(self) -> SliceReader:
        """Return the reader, on a host that is as the driver's. Raises: ConfigError for another one."""
        self.requirements.require()
        return Parts(self.feed).open_reader()

    def open_dead_letter_sink(self) -> Sink:
        """Return the sink of the dead letters, if there is one. After `open_sink`, and likewise."""
        assert self.feed.dead_letter is not None
        self.requirements.require()
        return Parts(self.feed.dead_letter).open_sink()

    def load(self) -> None:
        """Load what a worker may need in this process. Connects to nothing."""
        self.open_reader().close()
        self.open_sink().close()
        if self.feed.dead_letter is not None:
            self.open_dead_letter_sink().close()

    @property
    def evaluates(self) -> bool:
        """Whether rows travel in the columns layout, for the host to evaluate something."""
        return any(plan.query.by_spark for plan in self.plans)

    @property
    def runs_on_other_hosts(self) -> bool:
        """Whether tasks may run elsewhere than in the driver's JVM."""
        return self.requirements != HostRequirements()

    @property
    def exchanges(self) -> bool:
        """Whether the host must exchange rows between reading tasks and `writers`. Otherwise a task does both."""
        return self.feed.options.delivery_tasks > 1

    @property
    def writers(self) -> int:
        """How many writing tasks each step has if rows are exchanged: enough for the slices of a scan, too."""
        return min(MAX_DELIVERY_TASKS, max(self.feed.options.delivery_tasks, self.feed.parallelism))

    @property
    def key(self) -> tuple[str, int]:
        """Unique to this attempt, in any store: a worker may serve changefeeds of one name one after another."""
        return self.feed.feed_id, self.feed.epoch

    @property
    def channel(self) -> AttemptChannel:
        """A new end of the channel between the processes of this attempt."""
        return AttemptChannel(self.run_dir)

    @property
    def tasks_lock(self) -> Path:
        return self.state_dir / f"{self.feed.name}.tasks.lock"

    def at_work(self) -> AbstractContextManager[None]:
        """Hold the tasks' lock while a task of this attempt works. Raises: RetryableError after a newer attempt."""
        return at_work(self.tasks_lock, run_dir=self.run_dir)

    def open_store(self, *, alone: bool = False) -> ProgressStore:
        # Imported here for SQLAlchemy: Spark starts several processes before the first row that need no store.
        from cdc_core.store.progress import ProgressStore

        return ProgressStore(self.feed.state, alone=alone)

    def open_store_of_host(self) -> ProgressStore:
        """Return the store, on a host that can ask it. Raises: ConfigError for another one."""
        self.requirements.require()
        return self.open_store()

    def open_epoch_check(self) -> EpochCheck:
        """Return the check of this attempt, on a host that can ask the store. Raises: ConfigError for another one."""
        return EpochCheck(self.open_store_of_host(), name=self.feed.name, epoch=self.feed.epoch)

    def open_topic_admission(self) -> TopicAdmission:
        """Return what admits topics in this process, on a host that can ask the store. Raises: ConfigError."""
        feed = self.feed
        store = self.open_store_of_host()
        return TopicAdmission(store, name=feed.name, epoch=feed.epoch, most=feed.options.max_topics)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Mask every error that leaves this process, and give it the form that the driver recognizes.

        Wraps every call that Spark makes into our code: Spark's log shows exceptions word for word. Raises:
        MaskedError. An unknown error becomes one that a retry may cure, except in a warm-up.
        """
        self._log_masked()
        try:
            with logged_as(self.feed.name):
                yield
        except MaskedError:
            raise
        except CdcError as error:
            masked = _masked(error, self.secrets)
            raise MaskedError(f"{masked} {to_wire(masked)}") from None
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            text = mask("".join(traceback.format_exception(error)).rstrip(), self.secrets)
            if not self.warm_up:
                reason = mask(f"{type(error).__name__}: {error}", self.secrets).strip().splitlines()[0]
                text += f"\n{to_wire(RetryableError(reason, outage=is_outage(error)))}"
            raise MaskedError(text) from None

    @property
    def secrets(self) -> frozenset[str]:
        return self.feed.secrets()

    def _log_masked(self) -> None:
        root = logging.getLogger()
        if not root.handlers:
            stream = logging.StreamHandler(sys.stderr)
            stream.setFormatter(NamingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
            root.addHandler(stream)
            root.setLevel(logging.INFO)
        for handler in root.handlers:
            handler.filters = [_FILTER]
        _FILTER.add(self.secrets)


def _masked(error: CdcError, secrets: frozenset[str]) -> CdcError:
    error.args = tuple(mask(str(argument), secrets) for argument in error.args)
    return error
