from __future__ import annotations

import pytest
from cdc_sink_webhook.answers import Answer, Meaning, retry_after_s


@pytest.mark.parametrize(
    ("meaning", "statuses"),
    [
        (Meaning.DELIVERED, [200, 201, 202, 204, 299]),
        (Meaning.BUSY, [408, 425, 429, 500, 501, 502, 503, 504, 507, 599]),
        (Meaning.MISCONFIGURED, [300, 301, 302, 304, 307, 308, 401, 403, 404, 405, 407, 415, 431]),
        (Meaning.CONFLICT, [409]),
        (Meaning.GONE, [410]),
        (Meaning.REFUSED, [400, 412, 413, 418, 422, 424, 499]),
    ],
)
def test_a_status_has_one_meaning(meaning: Meaning, statuses: list[int]) -> None:
    assert {Answer(status=status).meaning for status in statuses} == {meaning}


def test_every_misconfigured_status_has_a_remedy() -> None:
    answers = [Answer(status=status) for status in range(300, 600)]
    misconfigured = [answer for answer in answers if answer.meaning is Meaning.MISCONFIGURED]
    assert not [answer.status for answer in misconfigured if not answer.remedy]


def test_only_what_someone_changes_at_the_endpoint_is_repairable() -> None:
    answers = [Answer(status=status) for status in range(200, 600)]
    repairable = {answer.status for answer in answers if answer.repairable}
    assert {302, 303, 307, 401, 402, 403, 404, 405, 407} <= repairable
    assert not {301, 308, 400, 408, 409, 410, 414, 422, 429, 431, 451, 500, 503} & repairable
    assert {Answer(status=status).meaning for status in repairable} == {Meaning.MISCONFIGURED}


@pytest.mark.parametrize(
    ("title", "remedy"),
    [
        ("No required SSL certificate was sent", "Set client_cert and client_key"),
        ("The SSL certificate error", "Check client_cert and client_key"),
        ("The plain HTTP request was sent to HTTPS port", "Write webhook-https:// in the sink URI"),
        ("Bad Request", ""),
    ],
)
def test_no_row_is_bad_because_nginx_refuses_every_request(title: str, remedy: str) -> None:
    answer = Answer(status=400, text=f"<html> <head><title>400 {title}</title></head> <body> <center>…")
    assert (answer.meaning is Meaning.REFUSED, answer.remedy, answer.repairable) == (not remedy, remedy, bool(remedy))


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("0", None, 0.0),
        (" 120 ", None, 120.0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 1999 23:58:59 GMT", 60.0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", "Sat, 01 Jan 2000 00:00:59 GMT", 0.0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", None, 0.0),
        ("Friday, 31-Dec-99 23:59:59 GMT", "Fri, 31 Dec 1999 23:59:49 GMT", 10.0),
        ("soon", None, None),
        ("9" * 400, None, 3600.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", None, 3600.0),
        (f"Fri, 31 Dec {'9' * 20} 23:59:59 GMT", None, None),
        ("\xb2", None, None),
        ("-1", None, None),
        ("1.5", None, None),
        ("", None, None),
        (None, "Fri, 31 Dec 1999 23:59:59 GMT", None),
        ("Tue, 01 Jan 2115 00:01:30 GMT", "Tue, 01 Jan 2115 00:00:00 GMT", 90.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, date: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, date) == seconds
