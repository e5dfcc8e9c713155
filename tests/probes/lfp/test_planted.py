"""The gate: a feedback pattern that was planted is read, and nothing is read where there is none."""

from __future__ import annotations

import pytest

from interp.probes.lfp.planted import planted_gate


@pytest.mark.slow
def test_planted_feedback_is_read_and_absent_feedback_is_not() -> None:
    gate = planted_gate(seed=0)
    assert gate.passed, str(gate)
