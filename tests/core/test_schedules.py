"""Multipliers at the steps where their value is known."""

from __future__ import annotations

import math

import pytest

from interp.core.schedules import Schedule


def values(schedule, steps):
    return [schedule(step) for step in steps]


def test_constant():
    assert values(Schedule(10), range(10)) == [1.0] * 10


def test_linear_warm_up_reaches_one_at_its_last_step():
    assert values(Schedule(10, warmup_steps=4), range(6)) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert values(Schedule(10, warmup_steps=4, warmup_from=0.2), (0, 3)) == pytest.approx([0.4, 1.0])


def test_cosine_warm_up():
    schedule = Schedule(1000, warmup_steps=1000, warmup_from=0.1, warmup_shape="cosine")
    assert values(schedule, (249, 499, 999)) == pytest.approx(
        [0.1 + 0.9 * (1 - math.cos(math.pi / 4)) / 2, 0.55, 1.0]
    )


def test_linear_decay_goes_to_final_over_the_last_steps():
    schedule = Schedule(10, decay="linear", decay_steps=4)
    assert values(schedule, range(5, 11)) == pytest.approx([1.0, 1.0, 0.75, 0.5, 0.25, 0.0])
    assert Schedule(10, decay="linear", decay_steps=4, final=0.2)(10) == pytest.approx(0.2)


def test_cosine_decay():
    schedule = Schedule(100, decay="cosine", decay_steps=100)
    expected = [(1 + math.cos(math.pi * step / 100)) / 2 for step in (0, 25, 50, 99)]
    assert values(schedule, (0, 25, 50, 99)) == pytest.approx(expected)


def test_nothing_happens_past_the_end():
    for decay in ("linear", "cosine"):
        assert values(Schedule(10, decay=decay, decay_steps=5, final=0.1), (10, 11, 50)) == pytest.approx(
            [0.1] * 3
        )


def test_restarts_drop_after_their_step_and_return_by_a_cosine():
    schedule = Schedule(100, restarts=(20, 50), restart_steps=10)
    assert values(schedule, (20, 30, 31, 50, 60)) == pytest.approx([1.0] * 5)
    for start in (20, 50):
        expected = [0.1 + 0.9 * (1 - math.cos(math.pi * i / 10)) / 2 for i in range(1, 11)]
        assert values(schedule, range(start + 1, start + 11)) == pytest.approx(expected)


def test_a_restart_during_another_begins_again():
    schedule = Schedule(100, restarts=(20, 25), restart_steps=10)
    assert schedule(26) == pytest.approx(0.1 + 0.9 * (1 - math.cos(math.pi / 10)) / 2)


def test_parts_multiply():
    schedule = Schedule(10, warmup_steps=10, decay="linear", decay_steps=10)
    assert schedule(4) == pytest.approx(0.5 * 0.6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"total_steps": 0}, "total_steps = 0"),
        ({"total_steps": 5, "warmup_steps": 6}, "warmup_steps = 6 must lie between 0 and total_steps = 5"),
        ({"total_steps": 5, "decay_steps": -1}, "decay_steps = -1"),
        ({"total_steps": 5, "decay": "exponential"}, "decay = 'exponential' is not known"),
        ({"total_steps": 5, "warmup_shape": "square"}, "warmup_shape = 'square' is not known"),
        ({"total_steps": 5, "restarts": (2,)}, "need restart_steps"),
    ],
)
def test_a_bad_argument_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**arguments)
