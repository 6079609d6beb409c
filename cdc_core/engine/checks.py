"""What must hold of a changefeed's parts before it runs, and how its destination is made ready."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from cdc_core.config.definitions import place_of
from cdc_core.config.resolved import Job
from cdc_core.delivery.dead_letters import dead_letter_schema
from cdc_core.errors import ConfigError
from cdc_core.masking import masked_uri
from cdc_core.schema import TableSchema

__all__ = ["check_dead_letters", "check_encoder", "check_sink", "check_source", "prepare_sink"]


def check_source(job: Job) -> list[TableSchema]:
    """Return the tables that the source will be read for. Raises: ConfigError when it cannot be."""
    with closing(job.open_rangefeed()) as rangefeed:
        rangefeed.check()
        return list(rangefeed.schemas())


def check_encoder(job: Job, schemas: Sequence[TableSchema]) -> None:
    """Return when rows of *schemas* can be encoded. Raises: ConfigError when they cannot."""
    with closing(_for_tables(job, schemas).open_sink()) as sink:
        job.open_encoder().check([(sink.payload(schema), sink.topic(schema.name)) for schema in schemas])


def check_sink(job: Job, schemas: Sequence[TableSchema]) -> None:
    """Return when the destination can take rows of *schemas*. Raises: ConfigError when it cannot."""
    with closing(_for_tables(job, schemas).open_sink()) as sink:
        sink.check()


def check_dead_letters(job: Job, schemas: Sequence[TableSchema]) -> None:
    """Return when rows of *schemas* that have to be put aside can be, or when none ever are. Raises: ConfigError."""
    if job.dead_letter is None:
        return
    _refuse_one_place(job, job.dead_letter, schemas)
    letters = [dead_letter_schema(job.name)]
    try:
        check_sink(job.dead_letter, letters)
        check_encoder(job.dead_letter, letters)
    except ConfigError as error:
        raise ConfigError(f"changefeed '{job.name}', option 'dead_letter': {error}") from error


def prepare_sink(job: Job, schemas: Sequence[TableSchema]) -> None:
    """Create at the destination what rows of *schemas* need and the options allow; likewise for the dead letters.

    Raises: ConfigError, RetryableError.
    """
    with closing(_for_tables(job, schemas).open_sink()) as sink:
        sink.prepare()
    if job.dead_letter is not None:
        prepare_sink(job.dead_letter, [dead_letter_schema(job.name)])


def _refuse_one_place(job: Job, dead_letter: Job, schemas: Sequence[TableSchema]) -> None:
    """Raise a ConfigError when a consumer of the data would come upon the dead letters."""
    if dead_letter.sink.name != job.sink.name:
        return
    if job.sink_place() != dead_letter.sink_place():
        return
    data, letters = place_of(job.destination), place_of(dead_letter.destination)
    if job.output == "files":
        if f"{data}/".startswith(f"{letters}/") or f"{letters}/".startswith(f"{data}/"):
            raise ConfigError(
                f"changefeed '{job.name}' would put its dead letters, {masked_uri(dead_letter.destination)}, among the"
                f" files of its sink, {masked_uri(job.destination)}: give them a directory beside it"
            )
        return
    with closing(_for_tables(job, schemas).open_sink()) as sink, closing(dead_letter.open_sink()) as dead_letters:
        topic = dead_letters.topic(dead_letter_schema(job.name).name)
        if data == letters and topic in {sink.topic(schema.name) for schema in schemas}:
            raise ConfigError(
                f"changefeed '{job.name}' would send its dead letters to topic '{topic}' of its own rows: give them"
                " another topic, or leave its name to the changefeed"
            )


def _for_tables(job: Job, schemas: Sequence[TableSchema]) -> Job:
    return job.with_run(feed_id=job.feed_id, epoch=job.epoch, table_names=[schema.name for schema in schemas])
