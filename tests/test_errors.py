"""The error tree: what crosses a process border, and what callers may rely on."""

import errno
import inspect
import os
import resource
from pathlib import Path

import pytest

from cdc_core import errors
from cdc_core.engine.error_text import one_line
from cdc_core.errors import (
    START_OVER,
    CdcError,
    ConfigError,
    EncodeError,
    RefusedRowsError,
    RetryableError,
    RetryableSinkError,
    RowError,
    TerminalError,
    UnknownPluginError,
    from_wire,
    is_outage,
    to_wire,
)

ROOT = Path(__file__).resolve().parent.parent
CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, CdcError)]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_crosses_a_process_border(cls: type[CdcError]) -> None:
    wire = to_wire(cls('it failed: "ü"'))
    back = from_wire(f"org.apache.spark.SparkException: Traceback\n  {wire}\n\tat X.java:1")
    assert type(back) is cls
    assert str(back) == 'it failed: "ü"'


def test_the_wait_crosses_too() -> None:
    waiting = from_wire(to_wire(RetryableSinkError("busy", retry_after_s=2.5)))
    assert isinstance(waiting, RetryableError)
    assert waiting.retry_after_s == 2.5


@pytest.mark.parametrize("repairable", [False, True])
@pytest.mark.parametrize("cls", CLASSES)
def test_what_someone_repairs_elsewhere_crosses_too(cls: type[CdcError], repairable: bool) -> None:
    error = cls("it failed")
    error.repairable = repairable
    back = from_wire(to_wire(error))
    assert back is not None
    assert back.repairable is repairable


def test_an_error_of_a_plugins_own_class_arrives_as_the_one_that_it_is_derived_from() -> None:
    class FullShelfError(RetryableSinkError):
        pass

    back = from_wire(to_wire(FullShelfError("no room", retry_after_s=2.5)))
    assert type(back) is RetryableSinkError
    assert str(back) == "no room"


@pytest.mark.parametrize("text", ["", "an ordinary exception", "<<cdc-error"])
def test_a_text_without_an_error_has_none(text: str) -> None:
    assert from_wire(text) is None


def test_the_first_of_several_errors_counts() -> None:
    assert str(from_wire(to_wire(TerminalError("first")) + to_wire(TerminalError("second")))) == "first"


def test_errors_about_rows_are_no_reason_to_stop_or_to_retry() -> None:
    rows = {cls for cls in CLASSES if issubclass(cls, RowError)}
    assert rows == {RowError, EncodeError, RefusedRowsError}
    assert not any(issubclass(cls, TerminalError | RetryableError | ConfigError) for cls in rows)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ECONNRESET, errno.ETIMEDOUT])
def test_a_full_disk_is_waited_for_as_an_outage_is(number: int) -> None:
    assert is_outage(OSError(number, os.strerror(number)))
    assert not is_outage(OSError(errno.EACCES, "denied"))


def test_only_mistakes_of_the_user_exit_with_2() -> None:
    assert {cls for cls in CLASSES if cls.exit_status == 2} == {cls for cls in CLASSES if issubclass(cls, ConfigError)}


def test_an_unknown_plugin_reads_like_a_sentence_although_it_is_a_lookup_error() -> None:
    assert str(UnknownPluginError("there is no sink 'x'")) == "there is no sink 'x'"


def test_every_error_is_drawn_in_the_tree() -> None:
    for cls in CLASSES:
        assert cls.__name__ in (errors.__doc__ or "")


def test_whoever_is_sent_to_another_name_is_told_how_to_remove_the_old_changefeed() -> None:
    assert "`cdc drop FILE NAME`" in START_OVER
    sources = [path for folder in ("cdc_core", "plugins", "sinks") for path in (ROOT / folder).rglob("*.py")]
    texts = {path: path.read_text() for path in sources if "tests" not in path.parts and "build" not in path.parts}
    own = {path.relative_to(ROOT).as_posix() for path, text in texts.items() if "under another name" in text}
    assert own == {"cdc_core/remedies.py"}, "use START_OVER"


def test_the_limit_of_open_files_is_named_when_it_is_the_reason() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    remedy = "; this process may open {} files: raise the limit, for example with `ulimit -n 4096`"
    error = RetryableError("h:9092: no connection\nmore")
    assert one_line(error) == "h:9092: no connection"
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        assert one_line(error) == f"h:9092: no connection{remedy.format(free)}"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    error.__cause__ = OSError(errno.EMFILE, "Too many open files")
    assert one_line(error) == f"h:9092: no connection{remedy.format(before[0])}"
