"""Against a real registry."""

from __future__ import annotations

import base64
import json
import logging
import multiprocessing
import pickle
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cdc_schema_registry import Registry
from cdc_schema_registry import registry as registry_module
from cdc_schema_registry.address import RegistryAddress
from cdc_schema_registry.calls import RefusedError, post, translated
from cdc_sink_kafka.demo.servers import Certificates
from cdc_testing.kafka_fixtures import ProxyFactory
from cdc_testing.kafka_fixtures import Registry as Server

from cdc_core import ConfigError, RetryableError, TerminalError
from cdc_core.errors import is_outage

OWNER = "encoder 'json'"
USER, PASSWORD = "k@y", "ge/heim:%&"


def schema_of(type_: str, **more: Any) -> str:
    return json.dumps({"type": "object", "properties": {"a": {"type": type_}}, **more}, separators=(",", ":"))


def avro_of(type_: str) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": type_}]})


def with_user(url: str, user: str, password: str) -> str:
    return url.replace("://", f"://{quote(user, safe='')}:{quote(password, safe='')}@")


def encoded(path: Path) -> str:
    return quote(base64.b64encode(path.read_bytes()).decode(), safe="")


@pytest.fixture
def registry(schema_registry: Server) -> Registry:
    return Registry.of(schema_registry.url, owner=OWNER)


def test_a_schema_gets_one_id_however_often_it_is_registered(registry: Registry, topic_prefix: str) -> None:
    subject = f"{topic_prefix}foo-value"
    first = registry.register(subject, schema_of("integer"), "JSON")
    second = registry.register(subject, schema_of("string"), "JSON")
    assert first != second
    assert registry.register(subject, schema_of("integer"), "JSON") == first
    latest = registry.latest(subject)
    assert latest is not None
    assert (latest.schema_id, latest.version, latest.schema_type) == (second, 2, "JSON")
    assert json.loads(latest.schema) == json.loads(schema_of("string"))


def test_requests_to_a_registry_are_not_logged(
    registry: Registry, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        registry.check(f"{topic_prefix}foo-value", schema_of("integer"), "JSON")
        registry.register(f"{topic_prefix}foo-value", schema_of("integer"), "JSON")
    assert caplog.messages == []


def test_subjects_may_have_any_name(registry: Registry, topic_prefix: str) -> None:
    for name in ("a b", "ö/ü", "100%", "a?b=c", "db.public.t_u002e"):
        subject = f"{topic_prefix}{name}-key"
        schema_id = registry.register(subject, schema_of("integer"), "JSON")
        registry.check(subject, schema_of("integer"), "JSON")
        latest = registry.latest(subject)
        assert latest is not None
        assert latest.schema_id == schema_id


def test_each_schema_of_a_subject_is_registered_once(registry_proxy: ProxyFactory, topic_prefix: str) -> None:
    proxy = registry_proxy()
    registry = Registry.of(proxy.url, owner=OWNER)
    for _ in range(3):
        for subject in ("a", "b"):
            registry.register(topic_prefix + subject, schema_of("integer"), "JSON")
            pickle.loads(pickle.dumps(registry)).register(topic_prefix + subject, schema_of("integer"), "JSON")
            registry.register(topic_prefix + subject, schema_of("string"), "JSON")
    registrations = [request for request in proxy.requests if request.endswith("/versions")]
    assert len(registrations) == 4
    assert all(request.startswith("POST /subjects/") for request in proxy.requests)


def test_a_check_changes_nothing(registry: Registry, topic_prefix: str, set_compatibility: Any) -> None:
    subject = f"{topic_prefix}foo-value"
    registry.check(subject, schema_of("integer"), "JSON")
    assert registry.latest(subject) is None
    registry.register(subject, schema_of("integer"), "JSON")
    set_compatibility(subject, "BACKWARD")
    registry.check(subject, schema_of("number"), "JSON")
    latest = registry.latest(subject)
    assert latest is not None
    assert latest.version == 1


def test_the_compatibility_of_a_subject_is_its_own_or_the_registrys(
    registry: Registry, topic_prefix: str, set_compatibility: Any
) -> None:
    own, other = f"{topic_prefix}a/b", f"{topic_prefix}other"
    for subject in (own, other):
        registry.register(subject, schema_of("integer"), "JSON")
    set_compatibility(own, "FULL_TRANSITIVE")
    assert registry.compatibility(own) == "FULL_TRANSITIVE"
    assert registry.compatibility(other) == registry.compatibility(f"{topic_prefix}new") != "FULL_TRANSITIVE"


@pytest.mark.parametrize(
    ("schema_type", "old", "new"),
    [("JSON", schema_of("integer"), schema_of("string")), ("AVRO", avro_of("long"), avro_of("string"))],
)
@pytest.mark.parametrize("unknown", [None, "/versions?verbose"])
def test_an_incompatible_schema_is_refused_with_the_reason_and_both_schemas(
    registry_proxy: ProxyFactory,
    topic_prefix: str,
    set_compatibility: Any,
    schema_type: Any,
    old: str,
    new: str,
    unknown: str | None,
) -> None:
    proxy = registry_proxy()
    proxy.unknown = unknown
    registry = Registry.of(proxy.url, owner=OWNER)
    registry.check(f"{topic_prefix}first", new, schema_type)
    subject = f"{topic_prefix}foo-value"
    registry.register(subject, old, schema_type)
    set_compatibility(subject, "BACKWARD")
    for ask, refusal in ((registry.check, ConfigError), (registry.register, TerminalError)):
        with pytest.raises(refusal) as refused:
            ask(subject, new, schema_type)
        message = str(refused.value)
        assert f"new schema of subject '{subject}' as incompatible: Incompatible artifact" in message
        assert "the registered schema is version 1, " in message
        assert f"the new schema is {new};" in message
        assert "RuleViolationException" not in message
    registry.check(subject, old, schema_type)


@pytest.mark.parametrize("same", [True, False])
def test_a_registration_that_met_another_one_has_its_id_or_can_be_repeated(
    registry: Registry, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, *, same: bool
) -> None:
    subject = f"{topic_prefix}foo-value"

    def met_another(address: Any, path: str, body: Any, **more: Any) -> Any:
        if path.startswith("subjects/") and path.endswith("/versions"):
            if same:
                post(address, path, body, **more)
            raise RefusedError(409, 409, "An artifact with this ID already exists.")
        return post(address, path, body, **more)

    monkeypatch.setattr("cdc_schema_registry.registry.post", met_another)
    if not same:
        with pytest.raises(RetryableError, match=rf"of subject '{subject}': An artifact with this ID already"):
            registry.register(subject, avro_of("long"), "AVRO")
        monkeypatch.undo()
    schema_id = registry.register(subject, avro_of("long"), "AVRO")
    latest = registry.latest(subject)
    assert latest is not None
    assert (latest.schema_id, latest.version) == (schema_id, 1)


@pytest.mark.parametrize("read_only", [False, True])
def test_the_newest_schema_stands_for_one_that_differs_only_in_texts_set_aside(
    registry: Registry, topic_prefix: str, *, read_only: bool
) -> None:
    old, plain, other = schema_of("integer", x="int"), schema_of("integer"), schema_of("string")
    field = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}, "x": {"type": "integer"}}})
    schema_id = registry.register(topic_prefix, old, "JSON")
    asked = Registry.of(str(registry), owner=OWNER, read_only=read_only)
    assert asked.register(topic_prefix, plain, "JSON", aside="x") == schema_id
    asked.verify(every_s=0)
    assert schema_id not in {asked.register(topic_prefix, each, "JSON", aside="x") for each in (field, other)}


def test_a_schema_that_is_there_needs_no_right_to_write(registry_proxy: ProxyFactory, topic_prefix: str) -> None:
    proxy = registry_proxy()
    schema_id = Registry.of(proxy.url, owner=OWNER).register(topic_prefix, avro_of("long"), "AVRO")
    proxy.unwritable = True
    reader = Registry.of(proxy.url, owner=OWNER)
    assert reader.register(topic_prefix, avro_of("long"), "AVRO") == schema_id
    with pytest.raises(TerminalError, match="denied access"):
        reader.register(topic_prefix, avro_of("string"), "AVRO")


def test_an_earlier_version_is_accepted_even_if_it_is_incompatible_now(
    registry: Registry, topic_prefix: str, set_compatibility: Any
) -> None:
    subject = f"{topic_prefix}foo-value"
    registry.register(subject, schema_of("integer"), "JSON")
    registry.register(subject, schema_of("string"), "JSON")
    set_compatibility(subject, "BACKWARD")
    registry.check(subject, schema_of("integer"), "JSON")


def test_a_text_that_is_not_a_schema_is_refused_and_shown(registry: Registry, topic_prefix: str) -> None:
    with pytest.raises(TerminalError, match=f"schema of subject '{topic_prefix}foo'.*the schema is no schema"):
        registry.register(f"{topic_prefix}foo", "no schema", "AVRO")


def test_credentials_are_sent_and_wrong_ones_refused_without_showing_them(
    registry_proxy: ProxyFactory, topic_prefix: str
) -> None:
    proxy = registry_proxy(user=USER, password=PASSWORD)
    right = Registry.of(with_user(proxy.url, USER, PASSWORD), owner=OWNER)
    right.check(topic_prefix, schema_of("integer"), "JSON")
    assert right.register(topic_prefix, schema_of("integer"), "JSON") > 0
    for url in (proxy.url, with_user(proxy.url, USER, "geheimer"), with_user(proxy.url, "geheimer", PASSWORD)):
        wrong = Registry.of(url, owner=OWNER)
        asks: list[tuple[Any, type[Exception]]] = [
            (lambda wrong=wrong: wrong.check(topic_prefix, schema_of("integer"), "JSON"), ConfigError),
            (lambda wrong=wrong: wrong.register(topic_prefix, schema_of("integer"), "JSON"), TerminalError),
            (lambda wrong=wrong: wrong.latest(topic_prefix), TerminalError),
        ]
        for ask, refusal in asks:
            with pytest.raises(refusal, match="rejected the credentials") as refused:
                ask()
            assert getattr(refused.value, "repairable", False)
            assert proxy.url in str(refused.value)
            assert "geheim" not in str(refused.value) + repr(refused.value.__cause__) + repr(wrong)


def test_a_server_is_trusted_only_through_its_authority(
    registry_proxy: ProxyFactory, certificates: Certificates, topic_prefix: str
) -> None:
    proxy = registry_proxy(certificates=certificates)
    trusting = Registry.of(f"{proxy.url}?ca_cert={encoded(certificates.ca)}", owner=OWNER)
    trusting.check(topic_prefix, schema_of("integer"), "JSON")
    careless = Registry.of(f"{proxy.url}?insecure_tls_skip_verify=true", owner=OWNER)
    careless.check(topic_prefix, schema_of("integer"), "JSON")
    for parameters in ("", f"?ca_cert={encoded(certificates.stranger_ca)}"):
        wary = Registry.of(proxy.url + parameters, owner=OWNER)
        for ask, refusal in ((wary.check, ConfigError), (wary.register, TerminalError)):
            with pytest.raises(refusal, match=r"trust.*set 'ca_cert' to the certificate of its authority") as refused:
                ask(topic_prefix, schema_of("integer"), "JSON")
            assert refused.value.repairable


def test_a_client_presents_its_certificate(
    registry_proxy: ProxyFactory, certificates: Certificates, topic_prefix: str
) -> None:
    proxy = registry_proxy(certificates=certificates, demand_client_certificate=True)
    url = f"{proxy.url}?ca_cert={encoded(certificates.ca)}"
    pair = f"&client_cert={encoded(certificates.client_cert)}&client_key={encoded(certificates.client_key)}"
    Registry.of(url + pair, owner=OWNER).check(topic_prefix, schema_of("integer"), "JSON")
    with pytest.raises(TerminalError, match=r"trust.*'client_cert' and 'client_key'") as refused:
        Registry.of(url, owner=OWNER).register(topic_prefix, schema_of("integer"), "JSON")
    assert refused.value.repairable
    other = f"&client_cert={encoded(certificates.client_cert)}&client_key={encoded(certificates.server_key)}"
    with pytest.raises(ConfigError, match=r"invalid certificates for schema registry https://"):
        Registry.of(url + other, owner=OWNER).check(topic_prefix, schema_of("integer"), "JSON")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_registry_is_retryable_while_running_and_fails_a_check(
    registry_proxy: ProxyFactory, topic_prefix: str, status: int
) -> None:
    proxy = registry_proxy()
    registry = Registry.of(proxy.url, owner=OWNER)
    proxy.failure = status
    with pytest.raises(RetryableError, match=rf"unavailable for subject '{topic_prefix}': .*\(HTTP {status}\)"):
        registry.register(topic_prefix, schema_of("integer"), "JSON")
    with pytest.raises(ConfigError, match="is unavailable"):
        registry.check(topic_prefix, schema_of("integer"), "JSON")
    proxy.failure = None
    assert registry.register(topic_prefix, schema_of("integer"), "JSON") > 0


@pytest.mark.parametrize(
    ("status", "said"), [(401, "rejected the cred"), (403, "denied access"), (404, "was not found"), (407, "proxy")]
)
def test_a_refusal_of_the_user_or_the_path_may_be_repaired(
    registry_proxy: ProxyFactory, topic_prefix: str, status: int, said: str
) -> None:
    proxy = registry_proxy()
    proxy.failure = status
    registry = Registry.of(proxy.url, owner=OWNER)
    for ask, refusal in ((registry.check, ConfigError), (registry.register, TerminalError)):
        with pytest.raises(refusal, match=rf"schema registry {proxy.url} .*{said}") as refused:
            ask(topic_prefix, schema_of("integer"), "JSON")
        assert refused.value.repairable


def test_a_registry_in_mode_readonly_may_be_repaired(registry_proxy: ProxyFactory, topic_prefix: str) -> None:
    proxy = registry_proxy()
    proxy.odd = (422, b'{"error_code": 42205, "message": "Subject is in read-only mode"}')
    with pytest.raises(TerminalError) as refused:
        Registry.of(proxy.url, owner=OWNER).register(topic_prefix, schema_of("integer"), "JSON")
    assert refused.value.repairable
    assert str(refused.value) == (
        f"schema registry {proxy.url} takes no new version of subject '{topic_prefix}': Subject is in read-only mode"
        " (HTTP 422); set its mode to READWRITE"
    )


MEANINGS = {401: "repairable", 403: "repairable", 404: "repairable", 407: "repairable"}
MEANINGS |= dict.fromkeys((408, 425, 429, *range(500, 600)), "outage")


def test_each_status_is_busy_repairable_or_a_refusal() -> None:
    address = RegistryAddress(url="http://127.0.0.1:1")
    for status in range(400, 600):
        error = translated(address, "it", RefusedError(status, -1, "no"), checking=False)
        assert MEANINGS.get(status) == ("outage" if is_outage(error) else "repairable" if error.repairable else None)
        checked = translated(address, "it", RefusedError(status, -1, "no"), checking=True)
        assert isinstance(checked, ConfigError)
        assert checked.repairable is (status in MEANINGS)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<html>\n<body>Please log in</body></html>", "'<html> <body>Please log in</body></html>'"),
        (200, b"{}", "'{}'"),
        (200, b'{"id": null}', """'{"id": null}'"""),
        (200, b'{"id": "x"}', """'{"id": "x"}'"""),
        (200, b"", "nothing"),
        (204, b"", "nothing"),
        (200, b'[{"id": 7}]', """'[{"id": 7}]'"""),
        (200, b'{"id": ', """'{"id":'"""),
        (200, b"\xff\xfe", "'"),
        (302, b"", "HTTP 302"),
        (308, b"moved", "HTTP 308"),
        (200, b"x" * 10_000, f"'{'x' * 100}…'"),
    ],
)
def test_an_odd_answer_is_named_and_retried_but_not_for_ever(
    registry_proxy: ProxyFactory, topic_prefix: str, status: int, body: bytes, said: str
) -> None:
    proxy = registry_proxy()
    url = with_user(proxy.url, USER, PASSWORD)
    registry = Registry.of(url, owner=OWNER)
    proxy.odd = (status, body)
    asks: list[Callable[[], object]] = [
        lambda: registry.register(topic_prefix, schema_of("integer"), "JSON"),
        lambda: registry.latest(topic_prefix),
        lambda: registry.schema(1_000_000_000),
    ]
    for ask in asks:
        with pytest.raises(RetryableError) as raised:
            ask()
        assert not raised.value.outage
        text = str(raised.value)
        assert f"schema registry {proxy.url} " in text
        assert f"it answered {said}" in text
        assert text.endswith("not of a proxy or login page")
        assert "\n" not in text
    for check in (registry.check, lambda *_: registry.compatibility(topic_prefix)):
        with pytest.raises(ConfigError, match="it answered ") as refused:
            check(topic_prefix, schema_of("integer"), "JSON")
        assert refused.value.repairable
    proxy.odd = None
    assert registry.register(topic_prefix, schema_of("integer"), "JSON") > 0


def test_a_truncated_answer_is_named_and_retried_but_not_for_ever(
    registry_proxy: ProxyFactory, topic_prefix: str
) -> None:
    proxy = registry_proxy()
    proxy.odd, proxy.cut = (200, b'{"id": 1'), True
    with pytest.raises(RetryableError, match=rf"schema registry {proxy.url} .*it answered .*body") as raised:
        Registry.of(proxy.url, owner=OWNER).register(topic_prefix, schema_of("integer"), "JSON")
    assert not raised.value.outage


def test_an_unreachable_registry_is_retryable_while_running(topic_prefix: str) -> None:
    registry = Registry.of("http://me:geheim@127.0.0.1:1", owner=OWNER)
    with pytest.raises(RetryableError, match=r"http://127\.0\.0\.1:1 is unreachable: .*refused"):
        registry.register(topic_prefix, schema_of("integer"), "JSON")
    with pytest.raises(ConfigError, match="unreachable"):
        registry.check(topic_prefix, schema_of("integer"), "JSON")


def test_a_replica_takes_the_place_of_one_that_is_unreachable(schema_registry: Server, topic_prefix: str) -> None:
    registry = Registry.of(f"http://127.0.0.1:1,{schema_registry.url}", owner=OWNER)
    schema_id = registry.register(f"{topic_prefix}foo", schema_of("integer"), "JSON")
    assert Registry.of(schema_registry.url, owner=OWNER).schema(schema_id) is not None


def test_a_registry_that_does_not_respond_times_out(registry_proxy: ProxyFactory, topic_prefix: str) -> None:
    proxy = registry_proxy()
    proxy.silent = True
    with pytest.raises(RetryableError, match=r"unreachable: .*timed out"):
        Registry.of(f"{proxy.url}?timeout=300ms", owner=OWNER).register(topic_prefix, schema_of("integer"), "JSON")


@pytest.mark.parametrize("path", ["", "/no/such/api"])
def test_a_server_without_a_registry_at_the_path_is_named(
    schema_registry: Server, topic_prefix: str, path: str
) -> None:
    root = schema_registry.url.partition("/apis")[0]
    with pytest.raises(ConfigError, match=f"schema registry {root}{path} was not found: .*Confluent-compatible"):
        Registry.of(root + path, owner=OWNER).check(topic_prefix, schema_of("integer"), "JSON")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_its_own_connections(registry: Registry, topic_prefix: str) -> None:
    first = registry.register(topic_prefix, schema_of("integer"), "JSON")
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        found = [pool.apply(_register, [registry, topic_prefix, type_]) for type_ in ("integer", "string", "integer")]
    assert found[0] == found[2] == first
    assert registry.register(topic_prefix, schema_of("string"), "JSON") == found[1]


def _register(registry: Registry, subject: str, type_: str) -> int:
    return registry.register(subject, schema_of(type_), "JSON")


@pytest.fixture
def verified_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_VERIFY_S", 0.0)
    monkeypatch.setattr(registry_module, "_VERIFY_AFTER_OUTAGE_S", 0.0)
    monkeypatch.setattr(registry_module, "_LAG_S", 0.0)


def forget(url: str, subject: str) -> None:
    """Delete *subject* for good, as far as the registry does."""
    for query in ("", "?permanent=true"):
        request = urllib.request.Request(f"{url}/subjects/{quote(subject, safe='')}{query}", method="DELETE")
        with suppress(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=30).close()


@pytest.mark.usefixtures("verified_always")
@pytest.mark.parametrize("lost", ["a", "b", "c", "d", "e"])
def test_a_schema_that_the_registry_lost_is_named_soon(registry: Registry, topic_prefix: str, lost: str) -> None:
    ids = {name: registry.register(topic_prefix + name, schema_of("integer"), "JSON") for name in "abcde"}
    registry.verify()
    forget(registry.address.url, topic_prefix + lost)
    with pytest.raises(TerminalError) as failed:  # noqa: PT012
        for _ in range(2):
            registry.verify()
    assert not failed.value.repairable
    assert str(failed.value).startswith(
        f"schema registry {registry} gave the schema of subject '{topic_prefix}{lost}' the id {ids[lost]} and has none"
        " now: its schemas were deleted or replaced"
    )
    assert "`cdc rescan FILE NAME --all`" in str(failed.value)
    Registry.of(registry.address.url, owner=OWNER).register(topic_prefix + lost, schema_of("integer"), "JSON")


@pytest.mark.usefixtures("verified_always")
def test_a_server_of_the_registry_may_not_know_a_schema_yet(
    registry_proxy: ProxyFactory, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = registry_proxy()
    registry = Registry.of(proxy.url, owner=OWNER)
    registry.register(f"{topic_prefix}a", schema_of("integer"), "JSON")
    proxy.odd = (404, b'{"error_code": 40403, "message": "Schema not found"}')
    monkeypatch.setattr(registry_module.time, "sleep", lambda _: setattr(proxy, "odd", None))
    registry.verify()
    assert proxy.odd is None


@pytest.mark.usefixtures("verified_always")
def test_a_schema_that_has_another_id_now_is_named(registry_proxy: ProxyFactory, topic_prefix: str) -> None:
    proxy = registry_proxy()
    registry = Registry.of(proxy.url, owner=OWNER)
    schema_id = registry.register(f"{topic_prefix}a", schema_of("integer"), "JSON")
    proxy.odd = (200, json.dumps({"id": schema_id + 1, "version": 1}).encode())
    with pytest.raises(TerminalError, match=f"the id {schema_id} and has it as {schema_id + 1} now"):
        registry.verify()


def test_what_is_registered_is_verified_before_anything_new_is(
    registry_proxy: ProxyFactory, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry that was emptied, in an outage, would give the id of a lost schema to the new one."""
    for wait in ("_VERIFY_S", "_VERIFY_BEFORE_NEW_S", "_LAG_S"):
        monkeypatch.setattr(registry_module, wait, 0.0)
    proxy = registry_proxy()
    registry = Registry.of(proxy.url, owner=OWNER)
    registry.register(f"{topic_prefix}a", schema_of("integer"), "JSON")
    proxy.failure = 503
    registry.verify()
    proxy.failure = None
    forget(registry.address.url, f"{topic_prefix}a")
    with pytest.raises(TerminalError, match="consumers cannot decode"):
        registry.register(f"{topic_prefix}a", schema_of("string"), "JSON")
    assert registry.latest(f"{topic_prefix}a") is None


def test_ids_are_verified_every_ten_seconds_with_few_requests(
    registry_proxy: ProxyFactory, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = registry_proxy()
    registry = Registry.of(proxy.url, owner=OWNER)
    clock = [1e9]
    monkeypatch.setattr(registry_module.time, "monotonic", lambda: clock[0])
    for number in range(9):
        registry.register(f"{topic_prefix}{number}", schema_of("integer"), "JSON")
    asked = []
    for second in range(40):
        clock[0] += second % 2
        proxy.requests.clear()
        for _ in range(5):
            registry.verify()
        asked.append(len(proxy.requests))
    assert sorted(set(asked)) == [0, 4]
    assert sum(asked) == 4 * 2


def test_rows_wait_little_for_a_registry_that_hangs(
    registry_proxy: ProxyFactory, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = registry_proxy()
    registry = Registry.of(proxy.url, owner=OWNER)
    registry.register(topic_prefix, schema_of("integer"), "JSON")
    clock = [1e9]
    timeouts = []

    def hangs(address: RegistryAddress, *_: Any, **more: Any) -> Any:
        timeouts.append(address.timeout_s)
        clock[0] += 60
        raise TimeoutError

    monkeypatch.setattr(registry_module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr("cdc_schema_registry.registry.post", hangs)
    for _ in range(3):
        registry.verify()
    assert timeouts == [3.0]


@pytest.mark.usefixtures("verified_always")
def test_a_registry_that_cannot_be_asked_stops_nothing(
    registry_proxy: ProxyFactory, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = registry_proxy()
    registry = Registry.of(proxy.url, owner=OWNER)
    registry.register(f"{topic_prefix}a", schema_of("integer"), "JSON")
    for failure in (500, 403):
        proxy.failure = failure
        registry.verify()
    assert [message.startswith("cannot verify the ids of schemas: ") for message in caplog.messages] == [True, True]
    proxy.failure = None
    registry.verify()
