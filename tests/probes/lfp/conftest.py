"""Tuning is trl's, which asks for Python 3.11: below, the tests that tune can't be run."""

import sys

NEEDS_TRL = ["test_cli.py", "test_pipeline.py", "test_reproduce.py", "test_tuning.py"]
collect_ignore = NEEDS_TRL if sys.version_info < (3, 11) else []
