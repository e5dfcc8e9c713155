"""Detection, removal and addition by hand."""

from __future__ import annotations

import numpy as np
import pytest

from classic_ml.valuation.closed_forms import size_utility
from classic_ml.valuation.downstream import addition_curve, detection_f1, removal_curve


def test_f1_by_hand():
    values, bad = [0.3, -1.0, 0.1, 0.9], [True, True, False, False]
    assert detection_f1(values, bad) == 0.5  # flags 1 and 2
    assert detection_f1(values, bad, 3) == pytest.approx(2 * 2 / (3 + 2))
    assert detection_f1(values, [False, True, False, False], 1) == 1
    with pytest.raises(ValueError, match="n_flagged = 5"):
        detection_f1(values, bad, 5)
    with pytest.raises(ValueError, match="a bad owner"):
        detection_f1(values, np.zeros(4, bool))


def test_removal_and_addition_of_owners():
    game = size_utility((1, 10, 100), lambda q: q)
    values = [0.1, 0.2, 0.7]
    assert removal_curve(values, game).tolist() == [111, 11, 1, 0]
    assert addition_curve(values, game).tolist() == [0, 1, 11, 111]
    assert addition_curve([2.0, 1.0], lambda s: float(np.sum(s + 1))).tolist() == [0, 2, 3]
    with pytest.raises(ValueError, match="3 owners need as many values"):
        removal_curve([1.0, 2.0], game)
