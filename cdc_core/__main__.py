"""`python -m cdc_core` is `cdc`."""

import sys

from cdc_core.cli.main import main

sys.exit(main())
