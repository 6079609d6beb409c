"""What handlers work with: the store of the jobs and the installed plugins."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from starlette.requests import Request

from cdc_core.changefeeds.service import Changefeeds, ProgressStore
from cdc_core.masking import mask, secret_forms, uri_secrets
from cdc_core.plugins.host import PluginHost
from cdc_core.store.opening import sqlite_file


class Deployment:
    """The changefeeds of one store, for all requests of a server. Safe with several threads.

    *environ* is where references of new definitions are looked up, and *allowed_paths* are the directories below which
    they may name files. *keep_secret* is called with secrets before they are used, so that logs mask them. *node* is
    the name of the node that serves, if one does: what is started here is offered to that node first.
    """

    def __init__(
        self,
        store: ProgressStore,
        plugins: PluginHost,
        *,
        environ: Mapping[str, str],
        keep_secret: Callable[[frozenset[str]], object],
        allowed_paths: Iterable[str] = (),
        node: str | None = None,
    ) -> None:
        self.plugins, self.environ = plugins, environ
        self.changefeeds = Changefeeds(
            store, plugins=plugins, environ=environ, keep_secrets=self.add_secrets, node=node
        )
        self._allowed_paths = [Path(os.path.realpath(path)) for path in allowed_paths]
        self._keep_secret = keep_secret
        self._secrets: frozenset[str] = frozenset()
        self._adding = threading.Lock()
        self.add_secrets(uri_secrets(store.url))

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Mask *secrets* from now on."""
        forms = secret_forms(secrets)
        with self._adding:
            if not forms <= self._secrets:
                self._secrets |= forms
                self._keep_secret(forms)

    def allows_file(self, path: str) -> bool:
        """Return whether a new definition may refer to the file at *path*, wherever links lead."""
        whole = os.path.expanduser(path)
        if not os.path.isabs(whole) or "\0" in whole:
            return False
        return any(Path(os.path.realpath(whole)).is_relative_to(allowed) for allowed in self._allowed_paths)

    @property
    def state_dir(self) -> Path:
        """A directory for locks of runs on this host: beside a store that is a file."""
        file = sqlite_file(self.changefeeds.store.url)
        return Path(".cdc").absolute() if file is None else file.parent

    def masked(self, text: str) -> str:
        """Return *text* without the secrets that are known."""
        return mask(text, self._secrets)


def deployment_of(request: Request) -> Deployment:
    """Return what the handler of *request* works with."""
    deployment: Deployment = request.app.state.deployment
    return deployment
