"""The component to test, as the command line describes it. Checked without any connection."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.errors import ConfigError, OptionError
from cdc_core.masking import has_unencoded_password, masked_uri, secret_forms, secret_texts, uri_secrets
from cdc_core.options import describe, did_you_mean, option_names
from cdc_core.plugins.classes import load_class
from cdc_core.plugins.host import PluginHost
from cdc_core.registrations import RangefeedRegistration, Registration
from cdc_core.sink_registration import SinkRegistration

if TYPE_CHECKING:
    from cdc_conformance.promises import Conformance

UNIQUE = "{unique}"
"""A place holder in a URI or option. Each promise replaces it by a different word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The URI and the options for one promise, with `UNIQUE` replaced."""

    uri: str = field(repr=False)
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A component with its URI, options and capabilities. Holds secrets; `repr` does not show them."""

    kind: str
    name: str
    uri: str = field(default="", repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    format: str = ""
    capabilities: frozenset[str] = frozenset()

    @classmethod
    def parsed(
        cls,
        kind: str,
        name: str,
        *,
        uri: str | None = None,
        options: Iterable[str] = (),
        format_: str | None = None,
        capabilities: Iterable[str] = (),
    ) -> Given:
        """Return the component. Each of *options* is `name=value`. Raises: OptionError for any other form."""
        found: dict[str, str] = {}
        for text in options:
            option, equals, value = text.partition("=")
            if not equals or not option:
                raise OptionError(f"option '{option}' has no value; write it as name=value")
            if option in found:
                raise OptionError(f"option '{option}' is given twice; remove one")
            found[option] = value
        return cls(
            kind=kind,
            name=name,
            uri=uri or "",
            options=found,
            format=format_ or "",
            capabilities=frozenset(capabilities),
        )

    def place(self) -> Place:
        """Return the URI and the options for one promise."""
        word = f"v{secrets.token_hex(6)}"
        return Place(
            uri=self.uri.replace(UNIQUE, word),
            options={name: value.replace(UNIQUE, word) for name, value in self.options.items()},
        )

    def registration(self, host: PluginHost) -> Registration:
        """Return the registration of the component. Raises: as `PluginHost.component`."""
        return host.component(self.kind, self.name)

    def check(self, host: PluginHost, suite: type[Conformance], *, flag: str = "--") -> None:
        """Return when *suite* can run with this. Connects to nothing.

        *flag* is the prefix of the command's options, for messages. Raises: ConfigError.
        """
        registration = self.registration(host)
        self._check_uri(registration, flag)
        declared = self._option_classes(host, registration)
        known = {name for cls in declared for name in option_names(cls)}
        for name in self.options:
            if name.partition(".")[0] not in known:
                raise OptionError(f"{self.kind} '{self.name}' does not know option '{name}'{did_you_mean(name, known)}")
        if self.kind == "sink" and UNIQUE not in self.uri and not any(UNIQUE in text for text in self.options.values()):
            raise ConfigError(
                f"each promise needs a separate place: put {UNIQUE} into the URI or into an option, such as "
                f"{self._example(registration, known, flag)}"
            )
        for name in sorted(self.capabilities - suite.known_capabilities.keys()):
            hint = did_you_mean(name, suite.known_capabilities)
            raise ConfigError(f"no {self.kind} has the capability '{name}'{hint}")
        for name in sorted(self.capabilities & suite.capability_fixtures.keys()):
            raise ConfigError(
                f"the capability '{name}' needs the fixture {suite.capability_fixtures[name]}, which only a test class"
                f" can have; omit {flag}capability {name}, or write a test class (`cdc docs conformance`)"
            )

    def plain_secrets(self) -> frozenset[str]:
        """Return the secrets that can be recognized without the component, in every form."""
        found = set(uri_secrets(self.uri)) | set(secret_texts(self.options))
        return secret_forms(found.union(*map(uri_secrets, self.options.values())))

    def secrets(self, host: PluginHost) -> frozenset[str]:
        """Return all secrets of the URI and the options, in every form. Raises: as `registration`."""
        values = {**_parameters(self.uri), **self.options}
        declared = self._option_classes(host, self.registration(host))
        secret = {row.name for cls in declared for row in describe(cls) if row.secret}
        found = {text for name, text in values.items() if text and (name in secret or name.partition(".")[0] in secret)}
        return self.plain_secrets() | secret_forms(found.union(*map(uri_secrets, found)))

    def _check_uri(self, registration: Registration, flag: str) -> None:
        if not isinstance(registration, SinkRegistration | RangefeedRegistration):
            if self.uri:
                raise ConfigError(f"an {self.kind} has no URI; omit {flag}uri")
            return
        schemes = registration.schemes
        if not self.uri:
            place = f"/{UNIQUE}" if self.kind == "sink" else ""
            raise ConfigError(f"{self.kind} '{self.name}' needs a URI: {flag}uri '{schemes[0]}://…{place}'")
        scheme, separator, _ = self.uri.partition("://")
        if not separator or scheme.lower() not in schemes:
            taken = " or ".join(f"'{scheme}://'" for scheme in schemes)
            raise ConfigError(
                f"the URI of {self.kind} '{self.name}' must begin with {taken}, not '{masked_uri(self.uri)}'"
            )
        if has_unencoded_password(self.uri):
            raise ConfigError("the password in the URI must be percent-encoded: / is %2F, ? is %3F, # is %23, @ is %40")

    def _option_classes(self, host: PluginHost, registration: Registration) -> list[type]:
        registrations = [(self.kind, registration)]
        if self.kind == "sink":
            registrations.append(("encoder", host.component("encoder", self.format or "json")))
        classes = [
            load_class(found.options, owner=f"{kind} '{found.name}'", install_hint=found.install_hint)
            for kind, found in registrations
        ]
        return [*classes, ChangefeedOptions]

    def _example(self, registration: Registration, known: Collection[str], flag: str) -> str:
        messages = isinstance(registration, SinkRegistration) and registration.output == "messages"
        if messages and "topic_prefix" in known and "topic_prefix" not in {*self.options, *_parameters(self.uri)}:
            return f"{flag}option 'topic_prefix={UNIQUE}.'"
        path, question, query = masked_uri(self.uri).partition("?")
        return f"{flag}uri '{path.rstrip('/')}/{UNIQUE}{question}{query}'"


def _parameters(uri: str) -> dict[str, str]:
    return dict(parse_qsl(uri.partition("?")[2]))


def one_given(asked: Mapping[str, str | None], *, flag: str) -> tuple[str, str] | None:
    """Return kind and name of the component that was named, if any. Raises: ConfigError for several."""
    named = [(kind, name) for kind, name in asked.items() if name]
    if len(named) > 1:
        raise ConfigError(f"{' and '.join(f'{flag}{kind}' for kind, _ in named)} cannot be combined; keep one of them")
    return named[0] if named else None
