"""The definition that the progress store keeps: whole, with references to secrets, and never with a secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.components import encoder, plugin, rangefeed, sink, source_of

from cdc_core.config.changefeed import Changefeed
from cdc_core.config.definition import changed_plugins, changefeed_from, masked_option
from cdc_core.config.identity import require_same_source, same_destination
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.config.toml_file import read_changefeed
from cdc_core.errors import ConfigError
from cdc_core.masking import MASK
from cdc_core.plugins.host import PluginHost

ENVIRON = {"PW": "hunter2", "HOST": "desk", "KEY": "option-key", "HOOK": "t0ken/of/mine", "USER": "user"}
SECRETS = ("hunter2", "option-key", "t0ken", "s3cr3t", "hush", "5318008")


def host(version: str = "1.0") -> PluginHost:
    shelf = sink(options="cdc_testing.components:HookOptions")
    hook = sink("hook", schemes=("hook",), options="cdc_testing.components:HookOptions", secret_path=True)
    return PluginHost([source_of(plugin(rangefeed(), encoder(), shelf, hook), "cdc-paper", version)])


def from_file(tmp_path: Path, options: str = "", **changes: str) -> ResolvedChangefeed:
    lines = {"source": '"paper://user:${PW}@${HOST}/db"', "tables": '["orders"]', "sink": '"shelf://room"', **changes}
    path = tmp_path / "shop.toml"
    path.write_text(
        "[changefeed.orders]\n"
        + "\n".join(f"{key} = {value}" for key, value in lines.items())
        + f"\n[changefeed.orders.options]\n{options}\n"
    )
    return resolve(read_changefeed(path, environ=ENVIRON), host())


def again(definition: Mapping[str, Any], environ: Mapping[str, str] = ENVIRON) -> Changefeed:
    stored = json.loads(json.dumps(definition))
    assert not any(secret in str(stored) for secret in SECRETS)
    return changefeed_from(stored, "orders", origin="the progress store", environ=environ)


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ("", {}),
        ("", {"source": '"${SOURCE}"'}),
        ("", {"source": '"paper://${USER}:${PW}@desk/db?password=${PW}&application_name=x"'}),
        ('source_key = "${KEY}"\nheader = "Bearer ${KEY}"\npin = ""', {}),
        ('header = "${file:key}"', {}),
        ('token_url = "https://me:${PW}@issuer/token"', {}),
        ("mirrors = [{ uri = 'x://a' }, { uri = 'x://me:${PW}@b', password = '${KEY}' }]", {}),
        ("""mirrors = '[{"uri": "x://a"}, {"uri": "x://me:${PW}@b"}]'""", {}),
        ('pin = "code=${KEY}&sig=${PW}"', {}),
        ('secret_registry = "https://me:${PW}@registry:8081?timeout=10s"', {}),
        ("client = { api_key = '${KEY}', depth = { password = '${PW}', n = 3 } }", {}),
        ("""client = '{"api_key": "${KEY}", "n": 3}'""", {}),
        ('registry = "https://me:${PW}@registry"', {}),
        ("client = { password = '${PW}', 'token.auto' = true, 'token.file' = '/key', passwordFile = '/pw' }", {}),
        ("client = { proxy = 'http://token:${PW}@p', Authorization = 'Basic ${KEY}' }", {}),
        ("", {"sink": '"shelf://room?token_url=https%3A%2F%2Fissuer%2Ftoken"'}),
        ("", {"sink": '"shelf://room?client=%7B%22passwordFile%22:%22x%22%7D"'}),
        ("[changefeed.orders.spark]\n'spark.ssl.key.location' = '/key'\n'spark.x.credentials.provider' = 'a.B'", {}),
        ("[changefeed.orders.spark]\n'spark.jars.packages' = 'com.x:secrets:1.0,com.x:hadoop-auth:3.3'", {}),
        ("[changefeed.orders.spark]\n'spark.jars.repositories' = 'https://a/b,https://token:${PW}@c/d'", {}),
        ("[changefeed.orders.spark]\n'spark.url' = 'jdbc:postgresql://h/db?user=u&password=${PW}'", {}),
        ("""[changefeed.orders.spark]\n'spark.jaas' = 'x required user="u" password="${PW}";'""", {}),
        (
            "[changefeed.orders.spark]\n'spark.opts' = '-Dx.tokenUrl=http://i/t -Dx.password=${PW} -Dx.authToken=true'",
            {},
        ),
        ("", {"sink": '"shelf://room?pin=${KEY}&topic_prefix=x&registry=https://me:${PW}@registry"'}),
        ("", {"sink": '"hook://room/${HOOK}"'}),
        ("", {"sink": '"${SINK}"'}),
        ('on_error = "dead_letter"\ndead_letter = "hook://room/${HOOK}?pin=${KEY}"', {}),
        ("updated = true\nresolved = '1s'\ntopic_prefix = '$${x}'", {"format": '"json"'}),
    ],
)
def test_a_definition_with_references_runs_from_the_store(
    tmp_path: Path, options: str, changes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("option-key\n")
    monkeypatch.setitem(ENVIRON, "SOURCE", "paper://user:hunter2@desk/db")
    monkeypatch.setitem(ENVIRON, "SINK", "hook://room/t0ken/of/mine")
    feed = from_file(tmp_path, options, **changes)
    restored = resolve(again(feed.definition()), host())
    assert restored == feed
    assert restored.definition() == feed.definition()


def test_references_are_kept_as_written_and_files_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("option-key")
    written = from_file(tmp_path, 'header = "${file:key}"\nupdated = true').definition()["written"]
    assert written == {
        "source": "paper://user:${PW}@${HOST}/db",
        "tables": ["orders"],
        "sink": "shelf://room",
        "options": {"header": f"${{file:{tmp_path}/key}}", "updated": True},
        "spark": {},
    }


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"source": '"paper://user:${PW}@desk/db"'}, ("paper://user:***@desk/db", "shelf://room")),
        ({}, ("paper://user:***@${HOST}/db", "shelf://room")),
        ({"source": '"${SOURCE}"', "sink": '"${SINK}"'}, ("paper://${SOURCE}", "shelf://${SINK}")),
        ({"source": '"paper://${USER}@desk/x?mode=${HOST}"'}, ("paper://${USER}@desk/x?mode=${HOST}", "shelf://room")),
        ({"sink": '"${SCHEME}://room/${HOST}?pin=${KEY}"'}, ("paper://user:***@${HOST}/db", "shelf://room/${HOST}")),
        ({"sink": '"hook://${HOST}/x/${HOOK}"'}, ("paper://user:***@${HOST}/db", "hook://${HOST}/***")),
        ({"sink": '"${HOOKS}"'}, ("paper://user:***@${HOST}/db", "hook://${HOOKS}")),
    ],
)
def test_source_and_sink_keep_their_references(
    tmp_path: Path, changes: dict[str, str], shown: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"SOURCE": "paper://me:hunter2@desk/db", "SINK": "shelf://room?pin=s3cr3t", "SCHEME": "SHELF"}
    monkeypatch.setattr(f"{__name__}.ENVIRON", {**ENVIRON, **more, "HOOKS": "hook://desk/t0ken"})
    found = from_file(tmp_path, "header = '${KEY}'", **changes).definition()
    assert (found["source"], found["sink"]) == shown
    assert ("desk" in json.dumps(found)) is ("@desk" in shown[0])


def test_a_place_is_the_same_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_reference = from_file(tmp_path, sink='"shelf://${HOST}/x"').definition()
    plain = from_file(tmp_path, source='"paper://user:${PW}@desk/db"', sink='"shelf://desk/x/"').definition()
    assert "places" not in plain, "as every earlier version has stored it"
    for one, other in ((by_reference, plain), (plain, by_reference)):
        require_same_source("orders", one, other, changes_tables=True)
        assert same_destination(one, other)
    monkeypatch.setattr(f"{__name__}.ENVIRON", {**ENVIRON, "HOST": "shelf"})
    moved = from_file(tmp_path, sink='"shelf://${HOST}/x"').definition()
    for known in (by_reference, plain):
        with pytest.raises(ConfigError, match=r"was started on the source paper://user:\*\*\*@.*, not paper://user"):
            require_same_source("orders", known, moved, changes_tables=True)
        assert not same_destination(known, moved)


def test_a_password_that_is_also_the_users_name_is_still_a_reference(tmp_path: Path) -> None:
    feed = from_file(tmp_path, source='"paper://user:${USER}@desk/db"')
    assert feed.definition()["literal_secrets"] == []


@pytest.mark.parametrize(
    ("options", "changes", "place"),
    [
        ("", {"source": '"paper://user:hunter2@${HOST}/db"'}, "'source'"),
        ("", {"source": '"paper://user:hunter${N}@${HOST}/db"'}, "'source'"),
        ("", {"source": '"${SOURCE}?password=s3cr3t"'}, "'source' (its parameter password)"),
        ("", {"sink": '"shelf://room?pin=s3cr3t"'}, "'sink' (its parameter pin)"),
        ("", {"sink": '"shelf://room?registry=https://me:s3cr3t@registry"'}, "'sink' (its parameter registry)"),
        ("", {"sink": '"hook://room/t0ken/${PW}"'}, "'sink' (its path)"),
        ("", {"sink": '"hook://t0ken@room"'}, "'sink'"),
        ("", {"sink": '"hook://room:80/t0ken?topic_prefix=x"'}, "'sink' (its path)"),
        ("", {"sink": '"hook://${HOST}/t0ken"'}, "'sink' (its path)"),
        ("source_key = 'option-key'", {}, "option 'source_key'"),
        ("SOURCE_KEY = 'option-key'", {}, "option 'SOURCE_KEY'"),
        ("header = 'Bearer s3cr3t'", {}, "option 'header'"),
        ("header = 's3cr3t ${PW}'", {}, "option 'header'"),
        ("token_url = 'https://me:s3cr3t@issuer/token'", {}, "option 'token_url'"),
        ("pin = 's3cr3t='", {}, "option 'pin'"),
        ("pin = 'code=${KEY}&sig=s3cr3t'", {}, "option 'pin'"),
        ("secret_registry = 'https://me:s3cr3t@registry'", {}, "option 'secret_registry'"),
        ("secret_registry = 'https://s3cr3t@registry'", {}, "option 'secret_registry'"),
        ("registry = 'https://me:s3cr3t@registry'", {}, "option 'registry'"),
        ("mirrors = [{ uri = 'x://a' }, { uri = 'x://me:s3cr3t@b', at = 'c' }]", {}, "option 'mirrors'"),
        ("mirrors = [{ uri = 'x://a', password = 's3cr3t' }]", {}, "option 'mirrors'"),
        ("""mirrors = '[{"uri": "x://me:${PW}@a"}, {"uri": "x://me:s3cr3t@b"}]'""", {}, "option 'mirrors'"),
        ("client = { api_key = 's3cr3t' }", {}, "option 'client'"),
        ("client = { tokens = { url = 'https://issuer', password = 's3cr3t' } }", {}, "option 'client'"),
        ("'client.api_key' = 's3cr3t'", {}, "option 'client.api_key'"),
        ("""client = '{"api_key": "s3cr3t"}'""", {}, "option 'client'"),
        ("client = { proxy = 'http://me:s3cr3t@p' }", {}, "option 'client'"),
        ("client = { proxy = '${X}://me:s3cr3t@p' }", {}, "option 'client'"),
        ("client = { 'sasl.password' = 'Endpoint=sb://ns/;SharedAccessKey=s3cr3t=' }", {}, "option 'client'"),
        ("client = { connection = 'Endpoint=sb://ns/;SharedAccessKey=s3cr3t=' }", {}, "option 'client'"),
        ("client = { 'ssl.keystore.password' = 5318008 }", {}, "option 'client'"),
        ("client = { passwords = [5318008] }", {}, "option 'client'"),
        ("client = { password = 'hush ${PW}' }", {}, "option 'client'"),
        ("client = { note = 'Authorization: Basic s3cr3t' }", {}, "option 'client'"),
        ("""topic_prefix = '[{"api_key": "s3cr3t"}]'""", {}, "option 'topic_prefix'"),
        (
            "",
            {"sink": '"shelf://room?topic_prefix=http%3A%2F%2Fme%3As3cr3t%40p"'},
            "'sink' (its parameter topic_prefix)",
        ),
        ("", {"sink": '"shelf://room?token_url=https://me:s3cr3t@issuer"'}, "'sink' (its parameter token_url)"),
        ("on_error = 'dead_letter'\ndead_letter = 'hook://room/t0ken'", {}, "option 'dead_letter' (its path)"),
        (
            "on_error = 'dead_letter'\ndead_letter = 'shelf://room?pin=s3cr3t'",
            {},
            "option 'dead_letter' (its parameter pin)",
        ),
        ("[changefeed.orders.spark]\n'spark.x.password' = 's3cr3t'", {}, "the Spark setting 'spark.x.password'"),
        *(
            (f"[changefeed.orders.spark]\n'spark.x' = '{text}'", {}, "the Spark setting 'spark.x'")
            for text in (
                "jdbc:postgresql://h/db?user=u&password=s3cr3t",
                "jdbc:sqlserver://h;user=u;password=s3cr3t",
                "https://me:s3cr3t@repo/maven",
                "https://a/b,https://me:s3cr3t@repo/maven",
                "https://a,https://me:s3cr3t@repo/maven",
                "http://me:s3cr3t/x@p",
                "-Djavax.net.ssl.keyStorePassword=s3cr3t",
                "-Dpassword=${PW} -Dx.secret=s3cr3t",
                "--conf=x=-Dx.secret=s3cr3t",
                "{me} http://me:s3cr3t@p",
                'x.LoginModule required username="u" password="s3cr3t";',
                'x.LoginModule required username="u" password="${PW} s3cr3t";',
            )
        ),
    ],
)
def test_a_literal_secret_is_masked_and_named_when_it_is_to_run_from_the_store(
    tmp_path: Path, options: str, changes: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRON, "SOURCE", "paper://user@desk/db")
    monkeypatch.setitem(ENVIRON, "N", "2")
    monkeypatch.setitem(ENVIRON, "X", "http")
    definition = from_file(tmp_path, options, **changes).definition()
    assert definition["literal_secrets"] == [place]
    with pytest.raises(ConfigError) as raised:
        again(definition)
    assert str(raised.value) == (
        f"changefeed 'orders' cannot run from the progress store: {place} had a secret in plain text, which the store"
        " does not keep; write it as ${VARIABLE} or ${file:PATH} in the changefeed's file, and run once from the file"
    )


def test_a_secret_is_found_at_the_end_of_a_long_text() -> None:
    for text in ("a=" * 100_000, "token_url=x://" * 3_000):
        assert masked_option("x", text) == text
        assert masked_option("x", f"{text} password=s3cr3t") == MASK


def test_a_changefeed_of_python_code_runs_from_the_store_unless_it_holds_a_secret() -> None:
    fields: dict[str, Any] = {"name": "orders", "tables": ("orders",), "sink": "shelf://room"}
    plain = Changefeed(source="paper://desk/${db}", options={"topic_prefix": "$${x}"}, **fields)
    feed = resolve(plain, host())
    assert again(feed.definition(), {}) == Changefeed(source=plain.source, options=plain.options, **fields)
    with pytest.raises(ConfigError, match="'source' had a secret in plain text"):
        again(resolve(Changefeed(source="paper://user:hunter2@desk/db", **fields), host()).definition())


def test_a_definition_of_an_older_version_is_refused() -> None:
    with pytest.raises(ConfigError, match="an older version of cdc-core wrote; run it once from its file"):
        again({"source": "paper://desk/db", "tables": ["orders"], "sink": "shelf://room", "format": "json"})


def test_a_reference_that_is_missing_elsewhere_is_named(tmp_path: Path) -> None:
    definition = from_file(tmp_path).definition()
    with pytest.raises(ConfigError) as raised:
        again(definition, {"HOST": "desk"})
    assert str(raised.value) == (
        "the progress store: changefeed 'orders', source needs the environment variable 'PW', which is not set"
    )


def test_the_plugins_are_kept_with_their_versions_and_compared(tmp_path: Path) -> None:
    feed = from_file(tmp_path)
    definition = feed.definition()
    assert {plugin["kind"] for plugin in definition["plugins"]} == {"rangefeed", "encoder", "sink"}
    newer = resolve(again(definition), host("1.1")).definition()
    assert changed_plugins(definition, definition) == ""
    assert changed_plugins(definition, newer) == "cdc-paper 1.1 (before: 1.0)"
    assert changed_plugins({}, newer) == ""
