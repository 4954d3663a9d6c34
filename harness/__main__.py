"""Makes `python -m harness` equivalent to the `haloscope` command, for installations without the script."""

import sys

from harness.cli import main

sys.exit(main())
