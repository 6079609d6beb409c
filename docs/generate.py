"""Writes everything on the pages that comes from the code: what each `generate_*.py` here yields.

python docs/generate.py            write it
python docs/generate.py --check    exit with 1 if something is not up to date
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

_DOCS = Path(__file__).resolve().parent


def main(*, only_check: bool) -> int:
    """Write each page that is not up to date, or only say so. Return the exit status."""
    status = 0
    for generator in sorted(_DOCS.glob("generate_*.py")):
        pages = list(importlib.import_module(generator.stem).generated())  # a page may be of several generators
        for path, text in pages:
            if not path.exists() or path.read_text() != text:
                told = "is not up to date; run python docs/generate.py" if only_check else "written"
                sys.stderr.write(f"{path.relative_to(_DOCS.parent)} {told}\n")
                status = int(only_check)
                if not only_check:
                    path.write_text(text)
    return status


if __name__ == "__main__":
    sys.exit(main(only_check="--check" in sys.argv))
