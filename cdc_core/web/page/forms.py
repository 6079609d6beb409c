"""The form of a changefeed, made from the option classes of what it uses, and as the text of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_core.config.flat import flat, unflattened
from cdc_core.config.toml_file import definition_in, toml_text
from cdc_core.errors import ConfigError
from cdc_core.plugins.host import PluginHost
from cdc_core.web.config_keys import CLASS, COMMON, CORE, ConfigKey
from cdc_core.web.page.rendering import MAX_ENTRIES
from cdc_core.web.requests import Deployment
from cdc_core.web.validation import Validated, validate

_MAIN = ("name", "source", "tables", "query", "sink", "format")
_BOXES = ("tables", "query")
_COMMON = ("envelope", "updated", "diff", "resolved", "initial_scan", "on_error", "dead_letter")
_GROUPS = {
    "envelope": "Messages",
    "full_table_name": "Topics and order",
    "resolved": "Resolved marks and checkpoints",
    "initial_scan": "Start and end",
    "schema_change_events": "Schema changes",
    "max_step_rows": "Size of steps and rows",
    "on_error": "Errors and retries",
    "mask_key": "Masking, placement and monitoring",
}
"""Groups of the options that every changefeed has, by the first option of each."""
_FURTHER = "Sections of tables, functions, Spark and other settings"
_LABELS = {"name": "Name", "source": "Source", "tables": "Tables", "query": "Query", "sink": "Sink", "format": "Format"}
_HINTS = {
    "name": "1 to 40 of the characters A-Z a-z 0-9 _ -",
    "tables": "One table per line, such as public.orders. Not needed with a query.",
    "query": "SELECT … FROM a table, instead of tables.",
}
_SECRET = " Write the secret as ${VARIABLE} or ${file:PATH}, which each node resolves."


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of the form. With `choices` it is a list to choose from, otherwise a line or a `box` of text."""

    key: ConfigKey
    value: str
    hint: str
    error: str
    choices: Sequence[str]

    @property
    def label(self) -> str:
        return _LABELS.get(self.key.name, self.key.name)

    @property
    def part(self) -> str:
        """The id of the field in the page."""
        return "f-" + self.key.name.replace(".", "-")

    @property
    def box(self) -> bool:
        return self.key.name in _BOXES


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Options that belong together. `set`: how many have a value or an error."""

    title: str
    part: str
    fields: Sequence[Field]
    set: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check has found at one part."""

    tone: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The whole form: what a changefeed needs, what is often set, and the rest by groups.

    `others` are errors that belong to no field; `verdict` says in one line how it stands.
    """

    main: Sequence[Field]
    common: Sequence[Field]
    sections: Sequence[Section]
    others: Sequence[str]
    tone: str
    verdict: str


def validated(deployment: Deployment, values: Mapping[str, str]) -> Validated:
    """Return what is wrong with the form, option by option. Connects to nothing."""
    return validate(deployment, config_in(values))


def config_in(values: Mapping[str, str]) -> dict[str, str | None]:
    """Return the configuration that the form describes: the fields with a value. Tables may be in lines."""
    config: dict[str, str | None] = {name: value.strip() for name, value in values.items() if value.strip()}
    tables = config.get("tables")
    if tables is not None and not tables.startswith("["):
        config["tables"] = ",".join(line.strip().rstrip(",") for line in tables.splitlines() if line.strip())
    return {"connector.class": CLASS, **config}


def text_of(values: Mapping[str, str], keys: Sequence[ConfigKey]) -> str:
    """Return the file that the form describes, without values that cannot be written there; empty for an empty form.

    *keys* are those of what is chosen.
    """
    config = {name: text for name, text in config_in(values).items() if text and name != "connector.class"}
    if not config:
        return ""
    written, types = unflattened(config).written, {key.option: key.type for key in keys}
    options = {name: _typed(text, types.get(name)) for name, text in written["options"].items()}
    return toml_text(config.get("name", ""), {**written, "options": options})


def values_in(text: str) -> dict[str, str]:
    """Return the form that the file *text* describes. Raises: ConfigError when it cannot be read, or is too large."""
    name, written = definition_in(text, origin="the text")
    values = values_of(name, {"written": written})
    if len(values) > MAX_ENTRIES:
        raise ConfigError(f"the text has {len(values)} entries, but the maximum is {MAX_ENTRIES}; use `cdc create`")
    return values


def values_of(name: str, definition: Mapping[str, Any]) -> dict[str, str]:
    """Return the form of the changefeed *name* with this *definition*, as it was written."""
    written = definition.get("written") or definition
    values = {"name": name, **{key: str(value) for key, value in flat(written).items()}}
    if "tables" in values and not values["tables"].startswith("["):
        values["tables"] = values["tables"].replace(",", "\n")
    return values


def _typed(text: str, kind: str | None) -> str | bool | int:
    """Return a value as people write it in a file: flags and numbers have no quotes."""
    if kind == "BOOLEAN" and text in ("true", "false"):
        return text == "true"
    return int(text) if kind == "LONG" and text.isascii() and text.isdecimal() and len(text) < 19 else text


def form_of(
    plugins: PluginHost,
    values: Mapping[str, str],
    found: Validated,
    *,
    complete: bool = True,
    main: Sequence[str] = _MAIN,
) -> Form:
    """Return the form with *values* and what was *found*. Unless *complete*, what is missing is not an error yet.

    *main* are the fields before the options.
    """
    keys = {key.name: key for key in (*COMMON, *CORE, *found.keys)}
    shown = {name for name in keys if complete or values.get(name, "").strip()}
    problems = {name: " ".join(texts) for name, texts in found.problems.items() if name in shown or name not in keys}
    schemes = {"source": _schemes(plugins, "rangefeed"), "sink": _schemes(plugins, "sink")}
    formats = [encoder.name for encoder in plugins.encoders()]
    first = [
        _field(
            keys[name],
            values,
            problems,
            hint=f"{_HINTS.get(name, keys[name].doc)} {schemes.get(name, '')}".strip(),
            choices=formats if name == "format" else None,
        )
        for name in main
    ]
    groups: dict[str, list[Field]] = {"": [], _FURTHER: []}
    for group, key in _grouped([key for key in keys.values() if key.option is not None]):
        groups.setdefault(group, []).append(_field(key, values, problems))
    for name in values:
        if name not in keys and values[name].strip():
            groups[_FURTHER].append(_field(ConfigKey(name=name, type="STRING", doc="", group=""), values, problems))
    common = groups.pop("")
    first += [field for field in common if field.key.required]
    groups[_FURTHER] = groups.pop(_FURTHER)
    fields = {field.key.name for mine in (first, common, *groups.values()) for field in mine}
    return Form(
        main=first,
        common=[field for field in common if not field.key.required],
        sections=[_section(group, mine) for group, mine in groups.items() if mine],
        others=[text for name, text in problems.items() if name not in fields],
        **_verdict(found, problems, complete=complete),
    )


def _grouped(options: Sequence[ConfigKey]) -> Iterator[tuple[str, ConfigKey]]:
    """Yield each option with the title of its group, which is empty for those that are required or often set."""
    group = ""
    for key in options:
        is_core = key in CORE
        group = _GROUPS.get(key.name, group) if is_core else key.group
        yield "" if key.required or (is_core and key.name in _COMMON) else group, key


def _verdict(found: Validated, problems: Mapping[str, str], *, complete: bool) -> dict[str, str]:
    if problems:
        return {"tone": "bad", "verdict": "Correct the marked values."}
    if found.problems:
        return {"tone": "plain", "verdict": "Fill in the form; it is checked as you type."}
    return {"tone": "good", "verdict": "All options are valid." if complete else "All options are valid so far."}


def _section(group: str, fields: Sequence[Field]) -> Section:
    part = "".join(character if character.isalnum() else "-" for character in group.lower())
    return Section(
        title=group.replace("'", "").replace("Rangefeed", "Source"),
        part=f"o-{part}",
        fields=fields,
        set=sum(bool(field.value or field.error) for field in fields),
    )


def _field(
    key: ConfigKey,
    values: Mapping[str, str],
    problems: Mapping[str, str],
    *,
    hint: str | None = None,
    choices: Sequence[str] | None = None,
) -> Field:
    value = values.get(key.name, "")
    if choices is None:
        choices = ("true", "false") if key.type == "BOOLEAN" else key.choices if key.type != "LIST" else ()
    return Field(
        key=key,
        value=value,
        hint=hint or key.doc + (_SECRET if key.type == "PASSWORD" else ""),
        error=problems.get(key.name, ""),
        choices=(*choices, value) if choices and value and value not in choices else choices,
    )


def _schemes(plugins: PluginHost, kind: str) -> str:
    schemes = {scheme for row in plugins.listing() if row.kind == kind and not row.problem for scheme in row.schemes}
    return f"One of {', '.join(f'{scheme}://' for scheme in sorted(schemes))}." + (
        " Write a password as ${VARIABLE}." if kind == "rangefeed" else ""
    )
