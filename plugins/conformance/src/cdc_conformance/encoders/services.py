"""Promises about services that an encoder needs, such as a schema registry."""

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
    """Asked of encoders that need one."""

    @requires("service", "without one nothing can be out of reach")
    def test_a_service_out_of_reach_is_waited_for(
        self, rig: EncoderRig, unreachable_options: Mapping[str, Any], topic: str
    ) -> None:
        """With the service away, `check` raises ConfigError, and rows and marks RetryableError.

        Before a run a person is there to mend it. During a run the engine repeats the step until the service is back:
        any other error ends the changefeed. When this fails, look at which errors of the client are translated.
        """
        assert unreachable_options, "override the fixture unreachable_options: options that name a service that is away"
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
                pytest.fail(f"{form}: with the service away, {what} must raise RetryableError, not {error!r}")
            pytest.fail(f"{form}: with the service away, {what} must raise RetryableError; nothing was raised")
