"""Lets `python -m harness` stand for the `haloscope` command where the script is not on the path."""

import sys

from harness.cli import main

sys.exit(main())
