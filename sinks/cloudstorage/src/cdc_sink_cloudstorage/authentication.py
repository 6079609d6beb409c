"""Which options of credentials go together, and with which store."""

from __future__ import annotations

from collections.abc import Collection

from cdc_core.errors import OptionError
from cdc_sink_cloudstorage.options import CloudStorageOptions

__all__ = ["STORES", "is_specified", "refuse_misfits"]

STORES = {"s3": "S3", "gs": "Google Cloud Storage", "az": "Azure"}
"""What messages call the store of an fsspec protocol."""

_WAYS: dict[str, tuple[tuple[str, ...], ...]] = {
    "S3": (("aws_access_key_id", "aws_secret_access_key"),),
    "Google Cloud Storage": (("credentials",),),
    "Azure": (
        ("azure_account_name", "azure_account_key"),
        ("azure_account_name", "azure_client_id", "azure_client_secret", "azure_tenant_id"),
    ),
}
"""What `specified` needs: all of one of these."""
_SECRETS_OF = {
    "S3": ("aws_access_key_id", "aws_secret_access_key", "aws_session_token"),
    "Google Cloud Storage": ("credentials",),
    "Azure": ("azure_account_key", "azure_client_id", "azure_client_secret", "azure_tenant_id"),
}
"""What `implicit` finds elsewhere."""
_OTHERS_OF = {
    "S3": ("aws_region", "aws_endpoint", "s3_storage_class"),
    "Google Cloud Storage": ("gcs_endpoint",),
    "Azure": ("azure_account_name", "azure_environment", "azure_endpoint"),
}


def is_specified(options: CloudStorageOptions, store: str) -> bool:
    """Return whether the credentials of *store* are in *options*, as far as the user had a say in it."""
    if options.auth is not None:
        return options.auth == "specified"
    return bool(_given(options, _SECRETS_OF[store]))


def refuse_misfits(options: CloudStorageOptions, protocol: str, *, shown: str) -> None:
    """Raise an OptionError when credentials are missing, or given that the store of *protocol* has no use for.

    *shown* is the sink's URI without secrets.
    """
    store = STORES.get(protocol)
    for other in _SECRETS_OF:
        strange = _given(options, (*_SECRETS_OF[other], *_OTHERS_OF[other])) if other != store else []
        if strange:
            raise OptionError(
                f"sink '{shown}' cannot use {_listed(strange)}, which {'is' if len(strange) == 1 else 'are'} for"
                f" {other}: leave {'it' if len(strange) == 1 else 'them'} out"
            )
    if store is None:
        if options.auth is not None:
            raise OptionError(f"sink '{shown}' needs no credentials and cannot use AUTH: leave it out")
        return
    needed = dict.fromkeys(name for way in _WAYS[store] for name in way)
    empty = [name for name in needed if getattr(options, name) == ""]
    if empty:  # clients would look into the environment
        raise OptionError(f"sink '{shown}' has nothing in {_listed(empty)}: give a value, or leave it out")
    given = _given(options, _SECRETS_OF[store])
    if not is_specified(options, store):
        if given:
            raise OptionError(
                f"sink '{shown}' has AUTH=implicit and {_listed(given)}: leave {'it' if len(given) == 1 else 'them'}"
                " out, or set AUTH=specified"
            )
        return
    ways = _WAYS[store]
    if not any(len(_given(options, way)) == len(way) for way in ways):
        nearest = max(ways, key=lambda way: len(_given(options, way)))
        missing = [name for name in nearest if getattr(options, name) is None]
        raise OptionError(
            f"sink '{shown}' has credentials that are not complete: with AUTH=specified set {_listed(missing)} too,"
            f" or take {_listed(given)} out and use AUTH=implicit"
            if given
            else f"sink '{shown}' has AUTH=specified but no credentials:"
            f" set {' or '.join(_listed(way) for way in ways)}, or use AUTH=implicit"
        )
    if "azure_account_key" in given and len(given) > 1:
        raise OptionError(
            f"sink '{shown}' has both an account key and what a service principal needs, {_listed(given[1:])}: keep one"
            " of them"
        )


def _given(options: CloudStorageOptions, names: Collection[str]) -> list[str]:
    defaults = CloudStorageOptions()
    return [name for name in names if getattr(options, name) != getattr(defaults, name)]


def _listed(names: Collection[str]) -> str:
    written = [name.upper() for name in names]
    return ", ".join(written[:-1]) + (" and " if written[:-1] else "") + written[-1]
