"""The tests. Triton's kernels run in its interpreter, which must be chosen before anything imports triton."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"
