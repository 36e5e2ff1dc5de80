"""Faults: pure, seeded, the same shape; the stronger the fault, the farther from the series; strength 0 is none."""

from __future__ import annotations

import numpy as np
import pytest

from fewone.errors import InputError
from fewone.faults import FAULTS, inject

every_fault = pytest.mark.parametrize("fault", sorted(FAULTS))
RANDOM = np.random.default_rng(0)
WAVES = np.sin(np.arange(200) / 7.0 + RANDOM.uniform(0, 6, (12, 2, 1))) + 0.1 * RANDOM.normal(size=(12, 2, 200)) + 0.5


def test_there_are_at_least_twelve_kinds() -> None:
    assert len(FAULTS) >= 12


@every_fault
def test_a_fault_is_seeded_and_changes_nothing_in_place(fault: str) -> None:
    given = WAVES.copy()
    found = inject(given, fault, 1.0, seed=3)
    assert found.shape == WAVES.shape
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(given, WAVES)
    np.testing.assert_array_equal(found, inject(WAVES, fault, 1.0, seed=3))
    assert inject(WAVES.astype(np.float32), fault).dtype == np.float32


@every_fault
def test_no_strength_is_no_fault_and_more_is_farther(fault: str) -> None:
    np.testing.assert_array_equal(inject(WAVES, fault, 0.0), WAVES)
    slow = np.sin(np.arange(200) / 60.0 + np.arange(12)[:, None, None])
    distances = [np.abs(inject(slow, fault, strength) - slow).mean() for strength in (0.25, 1.0, 2.0)]
    assert 0 < distances[0] < distances[1] < distances[2]


@every_fault
def test_each_example_has_the_strength_asked_for_it(fault: str) -> None:
    strengths = np.where(np.arange(12) < 6, 0.0, 2.0)
    changed = np.abs(inject(WAVES, fault, strengths) - WAVES).max(axis=(1, 2)) > 0
    assert not changed[:6].any()
    assert changed[6:].all()


@every_fault
def test_standing_series_and_the_shortest_ones_are_welcome(fault: str) -> None:
    for values in (np.zeros((3, 1, 16)), np.full((3, 2, 40), 7.0), WAVES[:, :, :16]):
        assert np.isfinite(inject(values, fault, 2.0)).all()


def test_a_unit_is_no_matter() -> None:
    for fault in FAULTS.keys() - {"gap", "dropout"}:
        np.testing.assert_allclose(inject(1000.0 * WAVES, fault), 1000.0 * inject(WAVES, fault), rtol=1e-9, atol=1e-6)


def test_mistakes_are_told() -> None:
    with pytest.raises(InputError, match="no fault is called 'spikes'; there are offset"):
        inject(WAVES, "spikes")
    with pytest.raises(InputError, match="at least 16 steps"):
        inject(WAVES[:, :, :9], "spike")
    with pytest.raises(InputError, match="0 or more"):
        inject(WAVES, "spike", -1.0)
