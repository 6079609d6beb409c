"""The plugin host: which sources, encoders, sinks and functions are installed, and which of them can be used."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import pluggy

from cdc_core import hookspecs
from cdc_core.errors import ConfigError, PluginConflictError, PluginLoadError, UnknownPluginError
from cdc_core.function_registration import FunctionRegistration
from cdc_core.plugins.entry_points import PLUGINS, Listing, Published, published
from cdc_core.plugins.loading import Loaded, load_plugin
from cdc_core.registrations import EncoderRegistration, RangefeedRegistration, Registration
from cdc_core.sink_registration import SinkRegistration

_FILES = ("file", "s3", "gs", "azure", "azure-blob", "azure-storage", "memory")
# The kind, then each name and scheme. A test compares it with what they register.
DISTRIBUTIONS = {
    "cdc-conformance": ("rangefeed", "simulated"),
    "cdc-encoder-avro": ("encoder", "avro"),
    "cdc-encoder-csv": ("encoder", "csv"),
    "cdc-encoder-json": ("encoder", "json"),
    "cdc-encoder-parquet": ("encoder", "parquet"),
    "cdc-encoder-protobuf": ("encoder", "protobuf"),
    "cdc-rangefeed-postgres": ("rangefeed", "postgres", "postgresql"),
    "cdc-sink-cloudstorage": ("sink", "cloudstorage", *_FILES),
    "cdc-sink-kafka": ("sink", "kafka", "confluent-cloud", "azure-event-hub"),
    "cdc-sink-null": ("sink", "null"),
    "cdc-sink-webhook": ("sink", "webhook", "webhook-https", "webhook-http"),
}


def registering(kind: str, word: str) -> str | None:
    """Return the distribution of this project that registers *word*, a name or a scheme of *kind*, None if none does.

    It never guesses: anybody could publish a package under a name that is not taken.
    """
    return next((name for name, (of, *words) in DISTRIBUTIONS.items() if of == kind and word in words), None)


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: str
    registration: Registration
    plugin: Loaded

    @property
    def name(self) -> str:
        return self.registration.name

    @property
    def schemes(self) -> tuple[str, ...]:
        if isinstance(self.registration, RangefeedRegistration | SinkRegistration):
            return self.registration.schemes
        return ()


class PluginHost:
    """The components that some plugins register. A value: it changes nothing global, and a test may build its own.

    Plugins are loaded one by one. A plugin that cannot be used is listed with its problem and does not affect others;
    using its name is an error, and so is using a name or URI scheme that two plugins claim. Components stay unloaded.
    """

    def __init__(self, sources: Iterable[Published] = ()) -> None:
        manager = pluggy.PluginManager(hookspecs.PROJECT)
        manager.add_hookspecs(hookspecs)
        self._plugins = [load_plugin(manager, source) for source in sources]
        self._entries = [
            _Entry(kind, registration, plugin)
            for plugin in self._plugins
            for kind, registration in plugin.registrations
        ]

    @classmethod
    def load(cls) -> PluginHost:
        """Return a host with all installed plugins, ordered by distribution."""
        found = [claim for claims in published(PLUGINS).values() for claim in claims]
        return cls(sorted(found, key=lambda claim: (claim.distribution, claim.name)))

    def rangefeed_for(self, uri: str) -> RangefeedRegistration:
        """Return the source that *uri* selects. Raises: UnknownPluginError, PluginLoadError, PluginConflictError."""
        return cast(RangefeedRegistration, self._by_scheme("rangefeed", uri))

    def sink_for(self, uri: str) -> SinkRegistration:
        """Return the sink that *uri* selects. Raises: UnknownPluginError, PluginLoadError, PluginConflictError."""
        return cast(SinkRegistration, self._by_scheme("sink", uri))

    def encoder(self, name: str) -> EncoderRegistration:
        """Return the encoder called *name*. Raises: UnknownPluginError, PluginLoadError, PluginConflictError."""
        return cast(EncoderRegistration, self.component("encoder", name))

    def component(self, kind: str, name: str) -> Registration:
        """Return the component of *kind* called *name*. Raises: as above."""
        claims = [entry for entry in self._of(kind) if entry.name == name]
        names = {entry.name for entry in self._of(kind)}
        return self._usable(kind, f"{kind} '{name}'", name, claims, names)

    def components(self) -> Iterator[Registration]:
        """Yield the sources, encoders and sinks that can be used."""
        for entry in self._entries:
            if entry.kind != "function" and not self._problem(entry):
                yield entry.registration

    def encoders(self) -> list[EncoderRegistration]:
        """Return the encoders that can be used, by name."""
        usable = [entry.registration for entry in self._of("encoder") if not self._problem(entry)]
        return sorted((cast(EncoderRegistration, encoder) for encoder in usable), key=lambda encoder: encoder.name)

    def function(self, name: str) -> FunctionRegistration:
        """Return the function of queries called *name*. Raises: as `component`."""
        return cast(FunctionRegistration, self.component("function", name))

    @property
    def function_names(self) -> frozenset[str]:
        """The names of all functions of queries, usable or not."""
        return frozenset(entry.name for entry in self._of("function"))

    def listing(self) -> list[Listing]:
        """Return every component with its distribution and its problem, and every plugin without components."""
        rows = [
            _listing(entry.plugin, entry.kind, entry.registration, entry.schemes, self._problem(entry))
            for entry in self._entries
        ]
        rows += [_listing(plugin, "", None, (), plugin.problem) for plugin in self._plugins if not plugin.registrations]
        return sorted(rows, key=lambda row: (row.kind == "", row.kind, row.name, row.distribution))

    def _of(self, kind: str) -> list[_Entry]:
        return [entry for entry in self._entries if entry.kind == kind]

    def _by_scheme(self, kind: str, uri: str) -> Registration:
        scheme, is_uri, _ = uri.lower().partition("://")
        what = f"URIs that begin with '{scheme}://'" if is_uri else "a text without '://', which is not a URI"
        claims = [entry for entry in self._of(kind) if scheme in entry.schemes]
        schemes = {scheme for entry in self._of(kind) for scheme in entry.schemes}
        return self._usable(kind, f"{kind} for {what}", scheme if is_uri else "", claims, schemes)

    def _usable(self, kind: str, wanted: str, word: str, claims: list[_Entry], known: set[str]) -> Registration:
        """Return the one registration in *claims* if it can be used; otherwise raise the reason."""
        if not claims:
            raise self._unknown(kind, wanted, word, known)
        entry = claims[0]
        source = entry.plugin.source
        if len(claims) > 1:
            raise PluginConflictError(_conflict(wanted, claims))
        if entry.plugin.problem:
            raise PluginLoadError(f"{wanted} of {source.origin} cannot be used: {entry.plugin.problem}")
        namesakes = [other for other in self._of(kind) if other.name == entry.name]
        if len(namesakes) > 1:
            raise PluginConflictError(_conflict(f"{kind} '{entry.name}'", namesakes))
        return entry.registration

    def _problem(self, entry: _Entry) -> str:
        """Say what is wrong with a component: its plugin's problem, or another claim to its name or a scheme."""
        if entry.plugin.problem:
            return entry.plugin.problem
        others = [other for other in self._of(entry.kind) if other is not entry]
        claims = {f"the name '{entry.name}'": [other for other in others if other.name == entry.name]}
        for scheme in entry.schemes:
            claims[f"the scheme '{scheme}'"] = [other for other in others if scheme in other.schemes]
        for what, claimants in claims.items():
            if claimants:
                return f"{', '.join(other.plugin.source.origin for other in claimants)} claims {what} too"
        return ""

    def _unknown(self, kind: str, wanted: str, word: str, known: set[str]) -> ConfigError:
        """Return the error for a name or scheme that nothing registers; *known* are those that something does."""
        ours = registering(kind, word)
        for plugin in self._plugins:  # one that failed early could not say what it brings
            if plugin.problem and plugin.source.distribution in (ours, f"cdc-{kind}-{word}"):
                return PluginLoadError(f"{wanted} of {plugin.source.origin} cannot be used: {plugin.problem}")
        close = [] if ours else difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.65)
        close = close or [other for other in known if other.endswith(f"-{word}")]  # https, of webhook-https
        parts = [f"there is no {wanted}"]
        if close:
            parts.append(f"did you mean '{close[0]}'?")
        parts.append(f"installed: {', '.join(sorted(known))}" if known else f"no {kind} is installed")
        if not close:
            parts.append(f"run pip install {ours}" if ours else "install the package that registers it")
        failed = [plugin.source.origin for plugin in self._plugins if not plugin.registrations]
        if failed:
            parts.append(f"could not be loaded: {', '.join(failed)} (see 'cdc plugins')")
        return UnknownPluginError("; ".join(parts))


def _conflict(wanted: str, claims: list[_Entry]) -> str:
    origins = sorted({entry.plugin.source.origin for entry in claims})
    if len(origins) == 1:
        return f"{wanted} is registered twice by {origins[0]}"
    names = " or ".join(sorted({entry.plugin.source.distribution for entry in claims}))
    return f"{wanted} is claimed by both {' and '.join(origins)}; uninstall one of them: pip uninstall {names}"


def _listing(
    plugin: Loaded, kind: str, registration: Registration | None, schemes: tuple[str, ...], problem: str
) -> Listing:
    return Listing(
        kind=kind,
        name=plugin.source.name if registration is None else registration.name,
        schemes=schemes,
        distribution=plugin.source.distribution,
        version=plugin.source.version,
        summary="" if registration is None else registration.summary,
        problem=problem,
    )
