"""Promises about services that an encoder requires, such as a schema registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cdc_conformance.encoders.messages import history, written
from cdc_conformance.encoders.rig import EncoderRig
from cdc_conformance.promises import requires
from cdc_conformance.rows import INT8, TEXT, table
from cdc_core import ConfigError, RetryableError

__all__ = ["Services"]

_ORDERS = table("orders", {"id": INT8, "note": TEXT})


class Services:
    """Encoders with the capability `service`."""

    @requires("service", "only a service can be unreachable")
    def test_an_unreachable_service_is_retryable(
        self, rig: EncoderRig, unreachable_options: Mapping[str, Any], topic: str
    ) -> None:
        """While the service is unreachable, `check` raises ConfigError, and rows and marks raise RetryableError.

        The engine repeats the step until the service is available. Any other error ends the changefeed. Look at the
        errors of the client that are not translated.
        """
        assert unreachable_options, "override the fixture unreachable_options with options of an unreachable service"
        (form, *_) = rig.some()
        encoder = rig.encoder(form, **unreachable_options)
        with pytest.raises(ConfigError):
            encoder.check([(_ORDERS, topic)])
        for what in ("rows", "a resolved mark"):
            try:
                if what == "rows":
                    written(encoder, history(_ORDERS), topic, form)
                else:
                    encoder.encode_resolved(topic, history(_ORDERS).latest())
            except RetryableError:
                continue
            except Exception as error:
                pytest.fail(f"{form}: without the service, {what} must raise RetryableError, not {error!r}")
            pytest.fail(f"{form}: without the service, {what} must raise RetryableError; no error was raised")
