from __future__ import annotations

import base64
import dataclasses
import json
import logging
import zlib
from pathlib import Path

import pytest
from cdc_testing.engine import counter_feed
from cdc_testing.shown_secrets import shown_secrets

from cdc_core.engine.attempt_config import AttemptConfig, MaskedError
from cdc_core.errors import RetryableError, TerminalSinkError, from_wire

SECRET = "opens&ses:ame"


@pytest.fixture
def config(tmp_path: Path) -> AttemptConfig:
    feed = counter_feed(tmp_path, plain_secrets=frozenset({SECRET}), parallelism=2)
    return AttemptConfig(feed=feed, state_dir=tmp_path, run_dir=tmp_path / "1", start={"n": 3})


def left(config: AttemptConfig, error: BaseException) -> str:
    """Return what is left of *error* outside of the process."""
    with pytest.raises(MaskedError) as raised, config.guarded():
        raise error
    assert raised.value is error or raised.value.__suppress_context__
    return str(raised.value)


def test_a_config_survives_the_way_through_spark(config: AttemptConfig) -> None:
    assert AttemptConfig.from_option(config.to_option()) == config


@pytest.mark.parametrize("before", ["", "config=", "/a", "abc"])
def test_a_search_for_secrets_finds_them_in_what_passes_through_spark(config: AttemptConfig, before: str) -> None:
    text = json.loads(config.to_option())["config"]
    packed = base64.b64encode(zlib.compress(config.to_option().encode())).decode()
    assert SECRET not in text + packed
    assert shown_secrets(before + text[:-2], [SECRET, "another"]) == [SECRET]
    assert shown_secrets(before + packed, [SECRET, "another"]) == [SECRET]


def test_feeds_of_one_name_in_two_stores_are_told_apart(config: AttemptConfig) -> None:
    keys = {dataclasses.replace(config, feed=config.feed.for_attempt(feed_id=id_, epoch=1)).key for id_ in ("a", "b")}
    assert len(keys) == 2


def test_our_errors_leave_with_their_kind_and_their_sentence(config: AttemptConfig) -> None:
    error = from_wire(left(config, TerminalSinkError("bucket 'x' refuses")))
    assert isinstance(error, TerminalSinkError)
    assert str(error) == "bucket 'x' refuses"


def test_errors_leave_masked(config: AttemptConfig) -> None:
    text = left(config, TerminalSinkError(f"password {SECRET} refused"))
    assert shown_secrets(text, [SECRET]) == []
    assert str(from_wire(text)) == "password *** refused"


def test_causes_leave_masked(config: AttemptConfig) -> None:
    cause = ConnectionError(f"postgresql://u:{SECRET}@host is down")
    error = ValueError("no rows")
    error.__cause__ = cause
    text = left(config, error)
    assert "ValueError: no rows" in text
    assert "is down" in text
    assert shown_secrets(text, [SECRET]) == []


def test_an_unknown_error_is_one_that_a_retry_may_cure(config: AttemptConfig) -> None:
    error = from_wire(left(config, KeyError("no\nidea")))
    assert isinstance(error, RetryableError)
    assert str(error) == "KeyError: 'no\\nidea'"


def test_an_unknown_error_in_a_warm_up_is_not(config: AttemptConfig) -> None:
    assert from_wire(left(dataclasses.replace(config, warm_up=True), KeyError("no idea"))) is None


@pytest.mark.parametrize("error", [GeneratorExit, KeyboardInterrupt, SystemExit])
def test_what_ends_a_process_or_a_generator_passes(config: AttemptConfig, error: type[BaseException]) -> None:
    with pytest.raises(error), config.guarded():
        raise error


def test_an_error_that_was_masked_already_passes_unchanged(config: AttemptConfig) -> None:
    assert left(config, MaskedError("as it is")) == "as it is"


def test_logs_of_a_worker_are_masked(
    config: AttemptConfig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as in a worker's process
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    with config.guarded():
        logging.getLogger("cdc_sink_x").warning("using %s", SECRET)
        try:
            raise ValueError(SECRET)
        except ValueError:
            logging.getLogger("library").exception("failed")
    shown = capsys.readouterr().err
    assert "using ***" in shown
    assert "ValueError: ***" in shown
    assert SECRET not in shown


def test_repr_shows_no_secret(config: AttemptConfig) -> None:
    assert SECRET not in repr(config)
