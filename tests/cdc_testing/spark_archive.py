"""Spark's classes in an archive that each JVM of the tests maps: a start takes two thirds of the time.

`python -m cdc_testing.spark_archive` makes it, once for each Java and installation of pyspark. Without it, or where it
does not fit, Java loads the classes as ever and says nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

__all__ = ["archive", "make", "use"]

ROOT = Path(__file__).parents[2]
_ALL = ROOT / "build" / "spark-archive"
_NAME = "spark.jsa"
_VARIABLE = "SPARK_SUBMIT_OPTS"
_LIMIT_S = 240.0


def archive() -> Path | None:
    """Return where the archive is, or would be, for the Java and the pyspark that this process starts.

    None where there is no Java or no pyspark. Java refuses an archive when one of the jars changed, so their times
    are part of its place.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    pyspark = find_spec("pyspark")
    if java is None or pyspark is None or pyspark.origin is None:
        return None
    jars = sorted((Path(pyspark.origin).parent / "jars").glob("*.jar"))
    stamps = [str(path) + str(path.stat().st_mtime_ns) for path in (Path(java).resolve(), *jars)]
    return _ALL / hashlib.sha256("\n".join(stamps).encode()).hexdigest()[:16] / _NAME


def use() -> None:
    """Have every JVM of Spark that this process and its children start use the archive, if there is one."""
    path = archive()
    if path is not None and path.exists() and str(path) not in os.environ.get(_VARIABLE, ""):
        _add(f"-Xshare:auto -XX:SharedArchiveFile={path} -Xlog:cds*=off")


def make() -> None:
    """See that the archive is there: run a changefeed and let its JVM write what it has loaded when it ends.

    The Spark home of that run stays, as Java looks at the jars under the names that they had then.
    """
    path = archive()
    if path is None or path.exists():
        return
    from cdc_testing.engine import counter_feed
    from pyspark import SparkContext

    from cdc_core.spark.runner import run
    from cdc_core.store.progress import ProgressStore, store_url

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        fresh, control = Path(scratch) / _NAME, Path(scratch) / "control"
        control.mkdir()
        _add(f"-XX:ArchiveClassesAtExit={fresh}")
        run(
            counter_feed(control, total=1000, rows_per_step=500),
            store=ProgressStore(store_url(control)),
            state_dir=path.parent,
            once=True,
            status=lambda _: None,
        )
        assert SparkContext._gateway is not None
        jvm: subprocess.Popen[bytes] = SparkContext._gateway.proc
        assert jvm.stdin is not None
        jvm.stdin.close()  # which ends it
        try:
            jvm.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            jvm.kill()
            raise
        fresh.replace(path)


def _add(options: str) -> None:
    """Put *options* before those that are there, which win."""
    os.environ[_VARIABLE] = f"{options} {os.environ.get(_VARIABLE, '')}".strip()


def main() -> int:
    """Make the archive; say why when that fails, which is no failure of what comes after it."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
    try:
        make()
    except Exception as error:  # the tests only take longer
        sys.stderr.write(f"Spark's classes are not archived: {error!r}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
