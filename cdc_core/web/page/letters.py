"""Dead letters on the page: the row of one, replaying all of them, discarding one. And the preview of messages."""

from __future__ import annotations

import json
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.changefeeds.replaying import Replayed
from cdc_core.delivery.row_json import row_json
from cdc_core.errors import CdcError, ConfigError, FencedError
from cdc_core.options import counted
from cdc_core.store.values import DeadLetter
from cdc_core.watching.preview import Previewed
from cdc_core.web.endpoint import Endpoints, Refusal, Role
from cdc_core.web.page.rendering import Confirmation, add_confirmed, error_page, feed_path, known_name, page
from cdc_core.web.requests import MAX_ROWS, Deployment, deployment_of, messages, number
from cdc_core.web.routes import status_of

ENDPOINTS = Endpoints(refused=error_page)

_SHOWN = 20


@ENDPOINTS.add("GET /ui/changefeeds/{name}/dead-letters/{number}", Role.OPERATE)
def show_letter(request: Request) -> Response:
    """Show a dead letter with its row, which is read from the dead-letter sink."""
    deployment, name, letter = _letter(request)
    row, problem = "", ""
    try:
        row = deployment.masked(_row(deployment, name, letter))
    except CdcError as error:
        problem = deployment.masked(str(error))
    if not (row or problem):
        problem = "The row is no longer in the dead-letter sink."
    is_job = deployment.changefeeds.find_job(name) is not None
    return page(request, "letter.html", name=name, letter=letter, row=row, problem=problem, is_job=is_job)


@ENDPOINTS.add("GET /ui/changefeeds/{name}/preview", Role.OPERATE, costly=True)
def show_preview(request: Request) -> Response:
    """Show the messages that the job would send for some rows of its tables; a refusal is shown with its reason."""
    deployment = deployment_of(request)
    name = known_name(request)
    found: Sequence[Previewed] = ()
    problem, status, headers = "", 200, {}
    try:
        found = messages(request, number(request, "rows", default=10, least=1, most=MAX_ROWS))
    except (CdcError, Refusal) as error:
        problem, status = deployment.masked(str(error)), status_of(error)
        headers = dict(error.headers) if isinstance(error, Refusal) else {}
    summary = "" if problem else f"{counted(len(found), 'message')}; nothing was sent."
    answer = page(
        request,
        "preview.html",
        status=status,
        name=name,
        messages=found,
        summary=summary,
        problem=problem,
    )
    answer.headers.update(headers)
    return answer


def _replay(deployment: Deployment, name: str, *give_up: int) -> None:
    """Replay the dead letters. Raises: ConfigError when rows remain, or nothing happened."""
    changefeeds = deployment.changefeeds
    changefeeds.require_job(name, verb="replay")
    try:
        found = changefeeds.replay(name, state_dir=deployment.state_dir, give_up=give_up)
    except ConfigError:
        raise
    except CdcError as error:
        before = "" if isinstance(error, FencedError) else "the dead letters stay: "
        raise ConfigError(f"{before}{error}") from error
    if remaining := _remaining(found):
        raise ConfigError(remaining)


def _remaining(found: Replayed) -> str:
    if not (found.kept or found.missing):
        return ""
    reasons = [f"{bad}: {bad.shown_reason}" for bad in found.kept[:_SHOWN]]
    if found.missing:
        reasons.append(f"{counted(found.missing, 'row')} missing from the dead-letter sink")
    return f"{counted(found.sent, 'row')} replayed; still dead letters: {'; '.join(reasons)}"


def _letter(request: Request) -> tuple[Deployment, str, DeadLetter]:
    deployment = deployment_of(request)
    name, number = known_name(request), str(request.path_params["number"])
    if number.isascii() and number.isdecimal() and 0 < len(number) < 19:
        found = deployment.changefeeds.dead_letters(name, after=int(number) - 1, limit=1)
        if found and str(found[0].number) == number:
            return deployment, name, found[0]
    raise Refusal(404, f"changefeed '{name}' has no such dead letter; it may have been replayed")


def _row(deployment: Deployment, name: str, letter: DeadLetter) -> str:
    """Return the row of *letter* as JSON; empty when it is not found. Raises: CdcError."""
    texts = []
    for found in deployment.changefeeds.dead_letter_rows(name, letter):
        for column in ("after", "before"):
            if column in found.row.batch.schema.names:
                text = row_json(found.row.schema, found.row.column(column)[0])
                texts.append(f"{column}: {json.dumps(json.loads(text), indent=2, ensure_ascii=False)}")
    return "\n".join(texts)


def _about_replay(request: Request) -> Confirmation:
    name = known_name(request)
    return Confirmation(
        title=f"Replay the dead letters of {name}?",
        text=(
            "Re-sends all dead letters, in order per key. A job must be paused first. A row that is refused again stays"
            " a dead letter."
        ),
        button="Replay",
        target=f"{feed_path(name)}/replay",
        back=feed_path(name),
    )


def _replay_all(request: Request) -> str:
    name = known_name(request)
    _replay(deployment_of(request), name)
    return f"{feed_path(name)}?done=replay"


def _about_discard(request: Request) -> Confirmation:
    _, name, letter = _letter(request)
    return Confirmation(
        title=f"Discard dead letter {letter.number}?",
        text=(
            f"The row of {letter.table} with the key {letter.key} will not be delivered. The other dead letters are"
            " sent to the sink again. A job must be paused first."
        ),
        button="Discard",
        target=f"{feed_path(name)}/dead-letters/{letter.number}/discard",
        back=f"{feed_path(name)}/dead-letters/{letter.number}",
        harm=True,
    )


def _discard(request: Request) -> str:
    """Discard one dead letter; the others are sent to the sink again, as `cdc replay-dead-letters --give-up` does."""
    deployment, name, letter = _letter(request)
    _replay(deployment, name, letter.number)
    return f"{feed_path(name)}?done=discard"


add_confirmed(ENDPOINTS, "/ui/changefeeds/{name}/replay", Role.OPERATE, _about_replay, _replay_all)
add_confirmed(ENDPOINTS, "/ui/changefeeds/{name}/dead-letters/{number}/discard", Role.OPERATE, _about_discard, _discard)
