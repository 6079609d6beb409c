"""The whole definition of a changefeed as the progress store keeps it: references to secrets, never secrets."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_plus

from cdc_core.config.changefeed import Changefeed
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.config.component import Component
from cdc_core.config.interpolation import (
    by_reference,
    cut_references,
    escaped,
    fill_references,
    has_references,
    interpolate,
)
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError
from cdc_core.masking import (
    MASK,
    has_unencoded_password,
    is_secret_name,
    masked_uri,
    says_where_secrets_are,
    uri_secrets,
)
from cdc_core.plugins.host import PluginHost
from cdc_core.registrations import Registration

_LABEL = re.compile(r"\A(?i:(Api-?Key|Api-?Token|Basic|Bearer|Splunk|Token) +|[\w.-]+=)(?=\S)")
"""What may precede a secret: a scheme as in `Bearer …`, or a name as in `code=…`."""
_ASSIGNED = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s*[:=]\s*""")
"""A name before its value in a text such as `-Dname=value`, `name="value";` or `Name: value`."""
_VALUE = re.compile(r""""[^"]*"|'[^']*'|(?:(?:Basic|Bearer|Token|ApiKey) +)?[^\s"'&;,]{0,1000}""", re.IGNORECASE)
"""As much of a value as tells whether it is a secret."""
_LOGIN = re.compile(r"://[^/?#\s:;=]*:[^/?#\s]*@")
_SCHEME = re.compile(r"(?<![\w+.\ue000-\uf8ff-])[\w+.\ue000-\uf8ff-]*://")
_COORDINATES = ("spark.jars.packages", "spark.jars.excludes")
"""Spark settings with names of Maven packages, which may look like `secrets:1.0`."""
_WORDS = re.compile(r"[._-]|(?<=[a-z0-9])(?=[A-Z])")
_PLACES = ("file", "location", "name", "path", "provider")
"""Last words of names that say where a secret is."""
_URIS = ("endpoint", "uri", "url")


def changefeed_of(name: str, written: Mapping[str, Any], *, origin: str, environ: Mapping[str, str]) -> Changefeed:
    """Return the changefeed that *written*, by the names of its fields, describes. *origin* says where it was read.

    Raises: ConfigError, which begins with *origin*.
    """
    place = f"{origin}: changefeed '{name}'"
    for key in ("query", "functions", "table"):
        if has_references(written.get(key)):
            raise ConfigError(
                f"{place}: {key} cannot have references such as ${{VARIABLE}}, because it is stored and shown as"
                " written; write the value, or '$${' for a literal '${'"
            )
    values = {key: interpolate(value, place=f"{place}, {key}", environ=environ) for key, value in written.items()}
    try:
        return Changefeed(name=name, **values, written=written)
    except ConfigError as error:
        raise type(error)(f"{origin}: {error}") from None


def changefeed_from(definition: Mapping[str, Any], name: str, *, origin: str, environ: Mapping[str, str]) -> Changefeed:
    """Return changefeed *name* by its stored definition. *origin* names the store.

    Raises: ConfigError, also when the definition is not whole: an older version stored it, or it held secrets.
    """
    if "written" not in definition:
        raise ConfigError(
            f"changefeed '{name}' cannot run from {origin}, which an older version of cdc-core wrote; run it once from"
            " its file"
        )
    if definition["literal_secrets"]:
        raise ConfigError(
            f"changefeed '{name}' cannot run from {origin}: {_listed(definition['literal_secrets'])} had a secret in"
            " plain text, which the store does not keep; write it as ${VARIABLE} or ${file:PATH} in the changefeed's"
            " file, and run once from the file"
        )
    return changefeed_of(name, definition["written"], origin=origin, environ=environ)


def require_references(definition: Mapping[str, Any], name: str) -> None:
    """Return if the definition is whole without its secrets: all are references. Raises: ConfigError."""
    literal = definition["literal_secrets"]
    if literal:
        raise ConfigError(
            f"changefeed '{name}': {_listed(literal)} {'has' if len(literal) == 1 else 'have'} a secret in plain text,"
            " which the store does not keep; write it as ${VARIABLE} or ${file:PATH}, which is resolved on the node"
        )


def changed_plugins(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return how the plugins of two definitions differ, such as `cdc-sink-kafka 0.2.0 (before: 0.1.0)`; mostly ``."""
    before = {(plugin["kind"], plugin["name"]): plugin for plugin in known.get("plugins", ())}
    changes = {}
    for plugin in wanted.get("plugins", ()):
        old = before.get((plugin["kind"], plugin["name"]), plugin)
        if (old["distribution"], old["version"]) != (plugin["distribution"], plugin["version"]):
            was = old["version"] if old["distribution"] == plugin["distribution"] else " ".join(_origin(old))
            changes[" ".join(_origin(plugin))] = was
    return ", ".join(f"{now} (before: {was})" for now, was in changes.items())


def stored_definition(changefeed: Changefeed, resolved: ResolvedChangefeed, host: PluginHost) -> dict[str, Any]:
    """Return what `changefeed_from` needs, as JSON values: the definition as written, and the plugins that it uses.

    A literal secret is masked, and its place listed under `literal_secrets`. Without references, as in a changefeed
    that Python code made, every secret is literal.
    """
    written = dict(written_of(changefeed))
    letters = resolved.dead_letter
    components: list[Component[Any]] = [resolved.rangefeed, resolved.encoder, resolved.sink]
    declared = _declared(ChangefeedOptions)
    for component in components:
        declared |= _declared(component.load_options())
    if letters is not None:
        components += [letters.encoder, letters.sink]
    found: dict[str, Any] = {}
    source = written["source"]
    found["source"] = without_literals(source) if isinstance(source, str) else [without_literals(uri) for uri in source]
    found["sink"] = without_literals(written["sink"], sink=resolved.sink)
    literal = [_secret_place(f"'{key}'", written[key], found[key]) for key in found if found[key] != written[key]]
    options, spark = {}, {}
    for name, value in written.get("options", {}).items():
        kind = declared.get(name.partition(".")[0].lower(), "")
        sink = letters.sink if letters is not None and name.lower() == "dead_letter" else None
        options[name] = masked_option(name, value, kind, sink=sink)
        if options[name] != value:
            literal.append(_secret_place(f"option '{name}'", value, options[name]))
    for name, value in written.get("spark", {}).items():
        spark[name] = masked_option(name, value)
        if spark[name] != value:
            literal.append(f"the Spark setting '{name}'")
    return {
        "written": {**written, **found, "options": options, "spark": spark},
        "literal_secrets": literal,
        "plugins": list(_plugins([*(each.registration for each in components), *resolved.installed_functions], host)),
    }


def written_of(changefeed: Changefeed) -> Mapping[str, Any]:
    """Return *changefeed* as it was written; one that Python code made, as a file would have it."""
    if changefeed.written:
        return changefeed.written
    names = [field.name for field in dataclasses.fields(changefeed) if field.name not in ("name", "written")]
    return {name: escaped(getattr(changefeed, name)) for name in names}


def _plugins(registrations: list[Registration], host: PluginHost) -> Iterator[dict[str, str]]:
    used = {(registration.KIND, registration.name) for registration in registrations}
    for row in host.listing():
        if (row.kind, row.name) in used:
            yield {"kind": row.kind, "name": row.name, "distribution": row.distribution, "version": row.version}


def _origin(plugin: Mapping[str, str]) -> tuple[str, str]:
    return plugin["distribution"], plugin["version"]


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _secret_place(what: str, value: Any, masked: Any) -> str:
    """Return *what* has a secret that is *masked*, and in which part where that is not the login of a URI."""
    if not isinstance(value, str) or not isinstance(masked, str) or masked == MASK:
        return what
    (place, _, query), (shown, _, rest) = (cut_references(uri)[0].partition("?") for uri in (value, masked))
    if re.split("(?<![:/])/", place)[0] != re.split("(?<![:/])/", shown)[0]:
        return what
    if place != shown:
        return f"{what} (its path)"
    pairs = zip(query.split("&"), rest.split("&"), strict=False)
    names = [before.partition("=")[0] for before, after in pairs if before != after]
    return f"{what} (its parameter {names[0]})" if names else what


def _declared(options: type) -> dict[str, str]:
    """Return the options that may hold secrets: "secret", "uri", or "secret uri"."""
    kinds = {
        field.name: " ".join(kind for kind in ("secret", "uri") if field.metadata.get(kind))
        for field in dataclasses.fields(options)
    }
    return {name: kind for name, kind in kinds.items() if kind}


def without_literals(uri: Any, *, sink: Component[Any] | None = None) -> Any:
    """Return *uri*, of *sink*, with every literal secret in it masked."""
    if not isinstance(uri, str):
        return uri
    text, references = cut_references(uri)
    whole = text if "://" in text else f"x://{text}"  # the scheme is in a reference
    if has_unencoded_password(whole):
        whole = masked_uri(whole)
    place, question, query = whole.partition("?")
    declared = {} if sink is None else _declared(sink.load_options())
    literal = not all(map(by_reference, uri_secrets(place) - {MASK}))
    secret_path = sink is not None and sink.registration.secret_path
    if secret_path:
        authority, _, path = place.partition("://")[2].partition("/")
        literal |= not by_reference(authority.rpartition("@")[0] + path, between="/:")
    if literal:
        place = masked_uri(place, secret_path=secret_path)
    parameters = "&".join(_masked_parameter(parameter, declared) for parameter in query.split("&"))
    masked = place + question + parameters
    return fill_references(masked if "://" in text else masked.removeprefix("x://"), references)


def _masked_parameter(parameter: str, declared: Mapping[str, str]) -> str:
    written, equals, raw = parameter.partition("=")
    name, value = unquote_plus(written), unquote_plus(raw)
    kind = declared.get(name.partition(".")[0].lower(), "")
    return parameter if masked_option(name, value, kind) == value else f"{written}{equals}{MASK}"


def masked_option(name: str, value: Any, kind: str = "", *, sink: Component[Any] | None = None) -> Any:
    """Return the value of an option with every literal secret in it masked, in nested tables too."""
    if says_where_secrets_are(name, value):
        return value
    if not kind and _is_secret(name, value):
        kind = "secret uri" if _is_uri(name, value) else "probably secret"
    kept = "" if kind == "probably secret" else kind
    if isinstance(value, Mapping):
        uris = "uri" in kept
        return {
            key: masked_option(key, inner, "" if uris and _is_secret(key, inner) else kept)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [masked_option(name, inner, kept) for inner in value]
    is_json = str(value).lstrip().startswith(("[", "{"))
    if "uri" in kind and not is_json:
        return MASK if kind == "secret uri" and _has_lone_user(value) else without_literals(value, sink=sink)
    if isinstance(value, str):
        text, _ = cut_references(value)
        safe = _is_reference(text) if kind and "uri" not in kind else name in _COORDINATES or _is_safe_text(text)
    else:
        safe = not kind or value is None
    return value if safe else MASK


def _is_secret(name: str, value: Any) -> bool:
    """Return whether *value* is probably secret by its name; a boolean never is."""
    place = _WORDS.split(name)[-1].lower() in _PLACES
    return is_secret_name(name) and not place and str(value).lower() not in ("true", "false")


def _is_uri(name: str, value: Any) -> bool:
    """Return whether *value* is a URI by its name, as that of `token_url`."""
    return isinstance(value, str) and "://" in value and _WORDS.split(name)[-1].lower() in _URIS


def _is_reference(text: str) -> bool:
    """Return whether a text under the name of a secret is references, maybe labelled."""
    return all(by_reference(_LABEL.sub("", part, count=1)) for part in text.split("&"))


def _has_lone_user(uri: Any) -> bool:
    """Return whether a URI has a user without a password, which may be a token."""
    authority = re.split("[/?#]", cut_references(str(uri))[0].partition("://")[2], maxsplit=1)[0]
    user = authority.rpartition("@")[0]
    return ":" not in user and not by_reference(user)


def _is_safe_text(text: str) -> bool:
    """Return whether a text without a secret-looking name holds no secret: it may hold URIs, settings, or JSON."""
    if text.lstrip().startswith("{"):
        try:
            table = json.loads(text)
        except ValueError:  # also of a number with too many digits
            if is_secret_name(text):
                return False
        else:
            return bool(masked_option("", table) == table)
    uris = [f"x://{rest}" for rest in _SCHEME.split(text)[1:]]
    if any(without_literals(uri) != uri for uri in uris):
        return False
    text = _LOGIN.sub("://", text)
    for found in _ASSIGNED.finditer(text):
        name = found[1]
        if is_secret_name(name) and (quoted := _VALUE.match(text, found.end())) is not None:
            value = quoted[0].strip("\"'")
            if _is_secret(name, value) and not _is_uri(name, value) and not _is_reference(value):
                return False
    return True
