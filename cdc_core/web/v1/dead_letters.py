"""Dead letters: which rows were refused, and sending them again."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.delivery.replay import Replay, waiting_rows
from cdc_core.engine.replay import replay
from cdc_core.errors import CdcError, ConfigError, FencedError
from cdc_core.private_files import make_state_directory
from cdc_core.store.values import DeadLetter
from cdc_core.store.verbs import require
from cdc_core.web.deployment import Deployment, deployment_of
from cdc_core.web.endpoint import Refusal
from cdc_core.web.requests import json_object, name_of, number

__all__ = ["dead_letters", "replay_dead_letters", "replayed"]

_MAX_ROWS = 1000


def dead_letters(request: Request) -> Response:
    """Return the dead letters that were not replayed, in the order in which they were refused."""
    deployment, name = deployment_of(request), name_of(request)
    _require_job(deployment, name)
    limit = number(request, "limit", default=100, least=1, most=_MAX_ROWS)
    after = number(request, "after", default=0, least=0, most=2**62)
    found = deployment.store.dead_letters.of(name, after=after, limit=limit)
    return JSONResponse([_values(letter) for letter in found])


def replay_dead_letters(request: Request) -> Response:
    """Send the dead letters of a paused job to its sink again, those of a key in order."""
    deployment, name = deployment_of(request), name_of(request)
    give_up = json_object(request, empty=True).get("give_up", [])
    if not isinstance(give_up, list) or not all(type(each) is int and 0 <= each < 2**62 for each in give_up):
        raise Refusal(400, "'give_up' must be a list of numbers of dead letters")
    outcome = _outcome(*replayed(deployment, name, give_up), len(set(give_up)))
    outcome["kept"] = [{key: deployment.masked(text) for key, text in each.items()} for each in outcome["kept"]]
    return JSONResponse(outcome)


def replayed(deployment: Deployment, name: str, give_up: Collection[int] = ()) -> tuple[Replay | None, int]:
    """Do what `cdc_core.engine.replay.replay` does with the paused job; None when there is nothing to do.

    Raises: Refusal when there is no such job, it is not paused, or its sink cannot take rows; ConfigError.
    """
    epoch = _require_job(deployment, name, to_replay=True)
    known = deployment.store.changefeeds.find(name)
    assert known is not None
    if not deployment.store.dead_letters.of(name, limit=1) and not give_up:
        return None, 0
    try:
        feed = deployment.changefeeds.feed(name, known.definition)
        state_dir = deployment.state_dir
        make_state_directory(state_dir)
        return replay(
            feed,
            store=deployment.store,
            state_dir=state_dir,
            find=partial(waiting_rows, feed),
            give_up=give_up,
            job_epoch=epoch,
        )
    except FencedError as error:
        raise Refusal(409, str(error)) from error
    except ConfigError:
        raise
    except CdcError as error:
        raise Refusal(409, deployment.masked(f"the dead letters stay: {error}")) from error


def _require_job(deployment: Deployment, name: str, *, to_replay: bool = False) -> int:
    """Return the job's epoch. Raises: Refusal."""
    job = deployment.store.jobs.find(name)
    if job is None:
        raise Refusal(404, f"there is no job '{name}'")
    if to_replay:
        try:
            require(job, "replay")
        except ConfigError as error:
            raise Refusal(409, str(error)) from error
    return job.epoch


def _values(letter: DeadLetter) -> dict[str, Any]:
    return {
        "number": letter.number,
        "refused_at": None if letter.refused_at is None else letter.refused_at.isoformat(timespec="seconds"),
        "table": letter.table,
        "key": letter.key,
        "updated": str(letter.updated),
        "stage": letter.stage,
        "error": letter.error,
    }


def _outcome(result: Replay | None, missing: int, given_up: int) -> dict[str, Any]:
    kept = () if result is None else result.kept
    return {
        "sent": 0 if result is None else len(result.sent),
        "kept": [{"row": str(bad), "stage": bad.stage, "reason": bad.shown_reason} for bad in kept],
        "missing": missing,
        "given_up": given_up,
    }
