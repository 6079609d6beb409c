"""Dead letters: which rows were refused, and sending them again."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.errors import CdcError, ConfigError, FencedError
from cdc_core.store.values import DeadLetter
from cdc_core.web.endpoint import Answer, Body, Endpoints, Refusal, Role, array, number_parameter, ref
from cdc_core.web.requests import deployment_of, job_of, json_object, number

ENDPOINTS = Endpoints()

_MAX_ROWS = 1000


@ENDPOINTS.add(
    "GET /v1/jobs/{name}/dead-letters",
    Role.VIEW,
    Answer(array(ref("DeadLetter"))),
    parameters=[
        number_parameter("limit", "At most so many. Default: 100.", 1, _MAX_ROWS),
        number_parameter("after", "Only those with a greater number.", 0, 2**62),
    ],
    errors=[400, 404],
)
def dead_letters(request: Request) -> Response:
    """The dead letters that were not replayed."""
    deployment, name = deployment_of(request), job_of(request)
    limit = number(request, "limit", default=100, least=1, most=_MAX_ROWS)
    after = number(request, "after", default=0, least=0, most=2**62)
    found = deployment.changefeeds.dead_letters(name, after=after, limit=limit)
    return JSONResponse([_values(letter) for letter in found])


@ENDPOINTS.add(
    "POST /v1/jobs/{name}/dead-letters/replay",
    Role.OPERATE,
    Answer(ref("Replayed")),
    body=Body(ref("GiveUp"), "Numbers of dead letters to discard instead.", required=False),
    errors=[400, 404, 409, 415],
)
def replay_dead_letters(request: Request) -> Response:
    """Send the dead letters of a paused job to its sink again."""
    deployment, name = deployment_of(request), job_of(request, "replay")
    give_up = json_object(request, empty=True).get("give_up", [])
    if not isinstance(give_up, list) or not all(type(each) is int and 0 <= each < 2**62 for each in give_up):
        raise Refusal(400, "'give_up' must be a list of numbers of dead letters")
    try:
        found = deployment.changefeeds.replay(name, state_dir=deployment.state_dir, give_up=give_up)
    except FencedError as error:
        raise Refusal(409, str(error)) from error
    except ConfigError:
        raise
    except CdcError as error:
        raise Refusal(409, deployment.masked(f"the dead letters stay: {error}")) from error
    masked = deployment.masked
    kept = [{"row": masked(str(bad)), "stage": bad.stage, "reason": masked(bad.shown_reason)} for bad in found.kept]
    return JSONResponse({"sent": found.sent, "kept": kept, "missing": found.missing, "given_up": found.given_up})


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
