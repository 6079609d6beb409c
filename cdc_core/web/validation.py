"""A connector's configuration, checked key by key without connecting to anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote_plus

from cdc_core.config.changefeed import Changefeed, require_name
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.config.component import Component
from cdc_core.config.definition import changefeed_of, masked_option, require_references
from cdc_core.config.flat import option_of, unflattened
from cdc_core.config.interpolation import file_references, has_references, interpolate, reference_values
from cdc_core.config.resolve import canonical_names, resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import CdcError, ConfigError
from cdc_core.masking import MASK, mask, secret_forms, secret_texts, secrets_of_uris
from cdc_core.options import option_problems, parse_options
from cdc_core.uris import split_parameters
from cdc_core.web.config_keys import CLASS, COMMON, CORE, ConfigKey, is_our_class, keys_of, remedy
from cdc_core.web.endpoint import Refusal
from cdc_core.web.requests import Deployment

T = TypeVar("T")
_PLACE = "the request"
_QUOTED = re.compile(r"(?:option|sets) '([^']+)'|'([^']+)' (?:needs|cannot|and|must)")
_SHOWN = ("name", "tables", "format", "cursor", "end_time", "metrics_label")
_BETWEEN_WORDS = re.compile(r"[\s,;&=?/:@\"'`(){}\[\]]+")
_MIN_WORD = 8
"""Errors may quote a part of a value. A shorter part is left, or messages would become unreadable."""
_START, _INSIDE = re.compile(r"(?<![\w.-])(?=\S)"), re.compile(r"[\w-]")
"""Where the name of a key begins in an error, and what no name ends before."""
_MAX_ERRORS, _MAX_NAME, _MAX_TEXT, _MAX_MASKED = 20, 150, 10_000, 1_000_000
"""Bounds of what a request may cost: errors found one after another, characters of names and texts compared, and keys,
whose errors are searched for each secret.
"""
_ALWAYS = ("name", "source", "sink", "format")
_NAMELESS = "-_-"
"""The name of a changefeed whose name is not right, while the rest is checked."""
_NULL = "Null value can not be supplied as the configuration value."


@dataclass(slots=True)
class Validated:
    """What was found of a configuration: what is wrong by key, and what it stands for if nothing is.

    `keys` are all keys that it may have, in order.
    """

    config: Mapping[str, str | None]
    keys: list[ConfigKey] = field(default_factory=lambda: [*COMMON, *CORE])
    problems: dict[str, list[str]] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict)
    feed: ResolvedChangefeed | None = None
    secrets: frozenset[str] = frozenset()

    def add(self, key: str, problem: str) -> None:
        found = self.problems.setdefault(key, [])
        text = mask(problem, self.secrets)
        if text not in found:
            found.append(text)

    @property
    def texts(self) -> list[str]:
        """All problems, for people."""
        return [text if key in text else f"'{key}': {text}" for key, found in self.problems.items() for text in found]

    def require_valid(self) -> ResolvedChangefeed:
        """Return the changefeed. Raises: Refusal, with the text that Kafka Connect has."""
        if self.feed is None or self.problems:
            lines = "\n".join(self.texts)
            raise Refusal(
                400,
                f"Connector configuration is invalid and contains the following {len(self.texts)} error(s):\n{lines}\n"
                "You can also find the above list of errors at the endpoint"
                " `/connector-plugins/{connectorType}/config/validate`",
            )
        return self.feed


def config_of_json(value: Mapping[str, Any]) -> dict[str, str | None]:
    """Return a configuration of texts; numbers and booleans become texts. Raises: Refusal for anything nested."""
    found: dict[str, str | None] = {}
    for key, inner in value.items():
        if isinstance(inner, dict | list):
            raise Refusal(400, f"the value of '{key}' must be a string; write lists and objects as JSON")
        found[key] = inner if inner is None or isinstance(inner, str) else json.dumps(inner)
    return found


def _mask_texts(config: Mapping[str, str | None], environ: Mapping[str, str]) -> frozenset[str]:
    """Return what must not be in an answer about *config*: its literal secrets, and what its references stand for."""
    texts = {key: value for key, value in config.items() if value is not None}
    literal = {
        value for key, value in texts.items() if masked_option(key, value) == MASK and MASK not in value and value
    }
    found = {*literal, *secrets_of_uris(list(texts.values())), *secret_texts(texts)}
    given = [texts, unflattened(texts).written]  # in JSON, references may be encoded
    resolved = frozenset(text for text in reference_values(given, environ=environ) if len(text) > 1)
    words = {word for text in resolved for part in (text, unquote_plus(text)) for word in _BETWEEN_WORDS.split(part)}
    parts = {word for word in words if len(word) >= _MIN_WORD}
    return secret_forms((found | resolved | parts | secrets_of_uris(list(resolved))) - {MASK})


def validate(deployment: Deployment, config: Mapping[str, str | None]) -> Validated:
    """Return what is wrong with *config*. Its references are resolved here, as nodes resolve them there.

    Logs mask the secrets of one that is right from then on.
    """
    environ = deployment.environ
    texts = {key: value for key, value in config.items() if value is not None}
    parts = unflattened(texts)
    refused = dict(_refused_references(texts, deployment))
    readable = {key: value for key, value in config.items() if key not in refused}
    secrets = _mask_texts(readable, environ)
    if len(config) * len(secrets) > _MAX_MASKED:
        raise Refusal(
            400,
            f"the configuration has {len(config):,} keys and too many secrets; write only the keys that the changefeed"
            " needs",
        )
    found = Validated(config, secrets=secrets, written=parts.written)
    for key, problem in refused.items():
        found.add(key, problem)
    if refused:
        return _with_rest(found, deployment, refused)
    for key, value in config.items():
        if value is None:
            found.add(key, _NULL)
    _check_common(found, texts)
    for key, problem in parts.problems.items():
        found.add(key, problem)
    resolved = {}
    for key, value in texts.items():
        try:
            resolved[key] = interpolate(value, place=f"'{key}'", environ=environ)
        except ConfigError as error:
            found.add(key, str(error))
    owned = _check_parts(found, resolved, deployment)
    _check_options(found, resolved, owned)
    feed = _check_together(found, texts, deployment)
    if feed is not None and not found.problems:
        deployment.add_secrets(feed.secrets())
        found.feed = feed
    return found


def _with_rest(found: Validated, deployment: Deployment, refused: Collection[str]) -> Validated:
    """Return *found* with what is wrong with the keys that are not *refused*, of which nothing is resolved."""
    kept = {key: value for key, value in found.config.items() if key not in refused}
    if len(kept) < len(found.config):
        rest = validate(deployment, kept)
        found.keys = rest.keys
        found.problems = {**rest.problems, **found.problems}
    return found


def _refused_references(texts: Mapping[str, str], deployment: Deployment) -> Iterator[tuple[str, str]]:
    """Yield the keys with references that a request may not have, and why. Nothing is resolved."""
    for key, text in texts.items():
        values = [text, unflattened({key: text}).written]  # in JSON, references may be encoded
        if (option_of(key) or key).lower() in _SHOWN and has_references(values):
            yield key, "cannot have references, because it is stored and shown as written; write the value"
        for path in file_references(values):
            if not deployment.allows_file(path):
                yield (
                    key,
                    f"refers to the file '{path}', which is not in a directory that the server's option"
                    " --allowed-paths lists; use ${VARIABLE}, or ask the server's operator to add the directory",
                )


def _check_common(found: Validated, texts: Mapping[str, str]) -> None:
    for key in ("name", "connector.class"):
        if not texts.get(key, "").strip() and found.config.get(key, "") is not None:
            found.add(key, f'Missing required configuration "{key}" which has no default value.')
    if texts.get("name", "").strip():
        try:
            require_name(texts["name"])
        except ConfigError as error:
            found.add("name", str(error))
    given = texts.get("connector.class", "")
    if given and not is_our_class(given):
        found.add("connector.class", f"Class {given} could not be found; the only connector is {CLASS}")
    most = texts.get("tasks.max", "1").strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", most):
        found.add("tasks.max", f"Invalid value {most} for configuration tasks.max: Not a number of type INT")
    elif int(most) < 1:
        found.add("tasks.max", f"Invalid value {most} for configuration tasks.max: Value must be at least 1")


def _check_parts(found: Validated, texts: Mapping[str, str], deployment: Deployment) -> list[tuple[str, str, type]]:
    """Return the parts that are known: the key that chooses it, its name in errors, and its class of options."""
    plugins = deployment.plugins
    source = unflattened({"source": texts.get("source", "")}).written.get("source", "")
    first = source if isinstance(source, str) else source[0] if source else ""
    choices = {
        "source": (first, plugins.rangefeed_for),
        "sink": (texts.get("sink", ""), plugins.sink_for),
        "format": (texts.get("format", "json"), plugins.encoder),
    }
    owned: list[tuple[str, str, type]] = []
    for key, (value, choose) in choices.items():
        if key in found.problems:
            continue
        try:
            part: Component[Any] = Component(registration=choose(value))
            options = part.load_options()
        except CdcError as error:
            found.add(key, str(error))
            continue
        owned.append((key, part.owner, options))
        found.keys += [each for each in keys_of(options, group=part.owner.capitalize()) if each not in found.keys]
    return owned


def _check_options(found: Validated, texts: Mapping[str, str], owned: Sequence[tuple[str, str, type]]) -> None:
    """Find what is wrong with each option. Parameters of the sink's URI are options of the sink."""
    keys = {option: key for key in texts if (option := option_of(key)) is not None}
    classes = [("options", f"changefeed '{_name_in(texts, found)}'", ChangefeedOptions), *owned]
    names = {key.option for key in found.keys if key.option is not None}
    try:
        given = canonical_names({option: texts[key] for option, key in keys.items()}, names, owner="the configuration")
        spelled = dict(zip(given, keys.values(), strict=True))
        parameters = canonical_names(split_parameters(texts.get("sink", ""), owner="")[1], names, owner="the sink")
    except ConfigError as error:
        found.add(key_of(str(error), found) or "sink", str(error))
        return
    all_parts_are_known = len(owned) == 3
    for name, key in spelled.items():
        if all_parts_are_known and name not in names and name.partition(".")[0] not in names:
            found.add(key, f"the configuration has no option '{name}'{remedy(name, names)}")
    for part, owner, options in classes:
        declared = {key.option for key in keys_of(options, group="")}
        mine = {name: value for name, value in given.items() if {name, name.partition(".")[0]} & declared}
        uri = {name: value for name, value in parameters.items() if name in declared} if part == "sink" else {}
        for name, problem in option_problems(options, {**mine, **uri}).items():
            key = spelled.get(name) or ("sink" if name in uri else name)
            found.add(key, problem if problem.startswith("Missing") else f"option '{name}' {problem}")
        _check_class(found, {name: spelled[name] for name in mine}, options, mine, uri, owner)


def _check_class(
    found: Validated,
    keys: Mapping[str, str],
    options: type,
    values: Mapping[str, Any],
    uri: Mapping[str, Any],
    owner: str,
) -> None:
    """Find what is wrong with *values* of a class of options together. *keys* are theirs, by option."""

    def check(right: Collection[str]) -> None:
        mine = {name: value for name, value in values.items() if keys[name] in right}
        parse_options(options, {**mine, **(uri if "sink" in right else {})}, owner=owner)

    _find_all(found, ["sink", *keys.values()], check)


def _check_together(found: Validated, texts: Mapping[str, str], deployment: Deployment) -> ResolvedChangefeed | None:
    """Find what is wrong with values that are right one by one; return the changefeed if all are right."""

    def define(right: Collection[str]) -> Changefeed:
        written = dict(unflattened({key: texts[key] for key in right}).written)
        written.setdefault("source", "source://")
        if "tables" not in written and "query" not in written:
            written["tables"] = ["table"]
        return changefeed_of(_name_in(texts, found), written, origin=_PLACE, environ=deployment.environ)

    def settle(right: Collection[str]) -> ResolvedChangefeed | None:
        if {"source", "sink", "format"} & found.problems.keys():
            return None
        feed = resolve(define(right), deployment.plugins)
        require_references(feed.stored, feed.name)
        _require_no_masks(feed.stored["written"])
        return feed

    _find_all(found, texts, define)
    return _find_all(found, texts, settle)


def _find_all(found: Validated, keys: Iterable[str], check: Callable[[Collection[str]], T]) -> T | None:
    """Return what *check* returns for the *keys* that are right; find what it raises for, one error after another.

    Of the keys that are wrong it gets none. What may only follow from these is not told, as long as it is about one.
    Of very many errors it finds the first ones.
    """
    right = [key for key in keys if key not in found.problems]
    for _ in range(_MAX_ERRORS):
        try:
            return check(right)
        except CdcError as error:
            text = str(error).removeprefix(f"{_PLACE}: ").removeprefix(f"changefeed '{_NAMELESS}': ")
            text = text.replace(f"changefeed '{_NAMELESS}'", "the changefeed")
        about = _mentioned(text, found.config)
        if not any(key in found.problems for key in about):
            sections = [key for key in about if key.startswith("table.")]
            key = (*sections, key_of(text, found) or (*about, "name")[0])[0]
            if key not in found.problems:
                found.add(key, text)
            about.append(key)
        before = len(right)
        right = [key for key in right if key not in about or key == "name"]
        if len(right) == before:
            break
    return None


def _name_in(texts: Mapping[str, str], found: Validated) -> str:
    return _NAMELESS if "name" in found.problems else texts["name"]


def _mentioned(text: str, keys: Iterable[str]) -> list[str]:
    """Return those of *keys* whose names are in *text*, in its order, but for what every changefeed has."""
    names: dict[str, list[str]] = {}
    for key in keys:
        name = option_of(key) or ("functions" if key.startswith("functions.") else key.replace("table.", "table ", 1))
        if key not in _ALWAYS and len(name) <= _MAX_NAME:
            names.setdefault(name, []).append(key)
    lengths = sorted({*map(len, names)}, reverse=True)
    about: dict[str, None] = {}
    for start in (found.start() for found in _START.finditer(text, 0, _MAX_TEXT)):
        for length in lengths:
            mentioned = names.get(text[start : start + length])
            if mentioned and not _INSIDE.match(text, start + length):
                about |= dict.fromkeys(mentioned)
    return list(about)


def _require_no_masks(written: Mapping[str, Any]) -> None:
    """Return unless a mask stands where a secret is missing. Raises: ConfigError."""
    for key, value in {**written, **written.get("options", {}), **written.get("spark", {})}.items():
        if value == MASK or MASK in secrets_of_uris(value):
            raise ConfigError(f"'{key}' has {MASK} instead of a secret; write it as ${{VARIABLE}} or ${{file:PATH}}")


def key_of(text: str, found: Validated) -> str | None:
    """Return the key that an error is about, as well as its text tells."""
    by_option = {key.option or key.name: key.name for key in found.keys}
    names = [name for match in _QUOTED.finditer(text) for name in match.groups() if name]
    names += re.findall(r"\b(source|sink|format|tables|query|functions)\b", text)
    names += ["tables"] if re.search(r"\btable\b", text) else []
    for name in names:
        if name in found.config or name in by_option:
            return by_option.get(name, name)
    return None
