"""The Triton kernels run in Triton's interpreter here, which must be chosen before triton is first imported."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"
