"""Which credential options go together, and with which store."""

from __future__ import annotations

from collections.abc import Collection

from cdc_core import OptionError
from cdc_sink_cloudstorage.options import CloudStorageOptions

STORES = {"s3": "S3", "gs": "Google Cloud Storage", "az": "Azure"}
"""The name of the store of each fsspec protocol, for messages."""

_ALTERNATIVES: dict[str, tuple[tuple[str, ...], ...]] = {
    "S3": (("aws_access_key_id", "aws_secret_access_key"),),
    "Google Cloud Storage": (("credentials",),),
    "Azure": (
        ("azure_account_name", "azure_account_key"),
        ("azure_account_name", "azure_client_id", "azure_client_secret", "azure_tenant_id"),
    ),
}
"""With `specified`, all options of one of these are required."""
_SECRETS_OF = {
    "S3": ("aws_access_key_id", "aws_secret_access_key", "aws_session_token"),
    "Google Cloud Storage": ("credentials",),
    "Azure": ("azure_account_key", "azure_client_id", "azure_client_secret", "azure_tenant_id"),
}
"""With `implicit`, the clients find these elsewhere."""
_OTHERS_OF = {
    "S3": ("aws_region", "aws_endpoint", "s3_storage_class", "aws_server_enc_mode", "aws_server_kms_id"),
    "Google Cloud Storage": ("gcs_endpoint",),
    "Azure": ("azure_account_name", "azure_environment", "azure_endpoint"),
}


def is_specified(options: CloudStorageOptions, store: str) -> bool:
    """Return whether the credentials of *store* come from *options*: AUTH says so, or some are given without AUTH."""
    if options.auth is not None:
        return options.auth == "specified"
    return bool(_given(options, _SECRETS_OF[store]))


def check_credentials(options: CloudStorageOptions, protocol: str, *, shown: str) -> None:
    """Return when *options* have the credentials that the store of *protocol* needs, and no others.

    *shown* is the sink's URI without secrets. Raises: OptionError.
    """
    store = STORES.get(protocol)
    for other in _SECRETS_OF:
        unused = _given(options, (*_SECRETS_OF[other], *_OTHERS_OF[other])) if other != store else []
        if unused:
            are, them = ("is", "it") if len(unused) == 1 else ("are", "them")
            raise OptionError(f"sink '{shown}' cannot use {_listed(unused)}, which {are} for {other}. Remove {them}")
    if store is None:
        if options.auth is not None:
            raise OptionError(f"sink '{shown}' does not use credentials. Remove AUTH")
        return
    alternatives = _ALTERNATIVES[store]
    needed = dict.fromkeys(name for names in alternatives for name in names)
    empty = [name for name in needed if getattr(options, name) == ""]
    if empty:  # with an empty value clients would use the environment
        raise OptionError(
            f"sink '{shown}' has an empty value for {_listed(empty)}. Set a value, or remove the parameter"
        )
    given = _given(options, _SECRETS_OF[store])
    if not is_specified(options, store):
        if given:
            raise OptionError(
                f"sink '{shown}' has AUTH=implicit together with {_listed(given)}. Remove"
                f" {'it' if len(given) == 1 else 'them'}, or set AUTH=specified"
            )
        return
    if not any(len(_given(options, names)) == len(names) for names in alternatives):
        if not given:
            raise OptionError(
                f"sink '{shown}' has AUTH=specified but no credentials. Set {' or '.join(map(_listed, alternatives))},"
                " or use AUTH=implicit"
            )
        nearest = max(alternatives, key=lambda names: len(_given(options, names)))
        missing = [name for name in nearest if getattr(options, name) is None]
        raise OptionError(
            f"sink '{shown}' has incomplete credentials. Set {_listed(missing)} as well, or remove {_listed(given)} and"
            " use AUTH=implicit"
        )
    if "azure_account_key" in given and len(given) > 1:
        raise OptionError(
            f"sink '{shown}' has both an account key and parameters of a service principal, {_listed(given[1:])}. Keep"
            " only one of the two"
        )


def _given(options: CloudStorageOptions, names: Collection[str]) -> list[str]:
    defaults = CloudStorageOptions()
    return [name for name in names if getattr(options, name) != getattr(defaults, name)]


def _listed(names: Collection[str]) -> str:
    written = [name.upper() for name in names]
    return ", ".join(written[:-1]) + (" and " if written[:-1] else "") + written[-1]
