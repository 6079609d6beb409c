"""docs/cloud-storage.md is true: real stores accept its examples, and the code has its error messages."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cdc_sink_cloudstorage import authentication, azure, gcs, s3_problems, store_problem
from cdc_sink_cloudstorage.destination import CloudStorageDestination
from cdc_testing.gcs_gate import GcsGate
from cdc_testing.object_stores import AZURE_ACCOUNT, AZURE_KEY, S3_KEY, S3_SECRET, Azurite, SeaweedFS

from cdc_core.config.changefeed import Changefeed
from cdc_core.config.interpolation import interpolate, with_absolute_files
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.plugins.host import PluginHost

PAGE = (Path(__file__).parents[3] / "docs" / "cloud-storage.md").read_text()
EXAMPLES = {
    name: fields
    for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    for name, fields in tomllib.loads(block)["changefeed"].items()
}
REQUIRED = {"source": "postgresql://u@h/d", "tables": ["public.orders"]}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_accepted_by_its_store(
    name: str, seaweedfs: SeaweedFS, gcs_gate: GcsGate, azurite: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only addresses and credentials of the page are replaced, by those of the test servers."""
    secrets = {
        "AWS_SECRET": quote(S3_SECRET, safe=""),
        "MINIO_SECRET": S3_SECRET,
        "GOOGLE_KEY_FILE": quote(gcs_gate.credentials(), safe=""),
        "AZURE_KEY": quote(AZURE_KEY, safe=""),
    }
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3_SECRET)
    shown: Any = interpolate(
        with_absolute_files({**REQUIRED, **EXAMPLES[name]}, Path("/")), place="example", environ=secrets
    )
    context = Parts(resolve(Changefeed(name=name, **shown), PluginHost.load())).open_destination().context
    servers = {
        "s3": {"aws_endpoint": seaweedfs.endpoint},
        "gs": {"gcs_endpoint": gcs_gate.endpoint},
        "azure": {"azure_endpoint": azurite.endpoint, "azure_account_name": AZURE_ACCOUNT},
    }
    changes = servers[context.uri.partition(":")[0]]
    if context.options.aws_access_key_id:
        changes["aws_access_key_id"] = S3_KEY
    options = dataclasses.replace(context.options, **changes)
    destination = CloudStorageDestination(dataclasses.replace(context, options=options))
    destination.check()
    destination.close()


def test_the_code_has_every_error_of_the_page() -> None:
    modules = (authentication, azure, gcs, s3_problems, store_problem)
    code = " ".join(Path(module.__file__ or "").read_text() for module in modules)
    code = re.sub(r'"\s+f?"', "", code)
    table = PAGE.partition("## Errors")[2].partition("\n## ")[0]
    said = [line.split("|")[2].strip() for line in table.splitlines() if line.startswith("| ")][1:]
    parts = [part.strip() for text in said for part in re.split(r"[;…']|\(the container\)|the endpoint|says$", text)]
    missing = [part for part in parts if part and part not in code]
    assert missing == []
    assert len(said) >= 10
