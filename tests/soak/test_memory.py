"""What counts as flat."""

import random

import pytest

from tests.soak.memory import growth_mb, is_flat


def _samples(per_hour: float, *, minutes: int = 15, noise: float = 4.0, spikes: bool = False) -> list[tuple[float, float]]:
    chance = random.Random(3)
    times = [15.0 * n for n in range(4 * minutes + 1)]
    spike = [60.0 if spikes and n % 9 == 0 else 0.0 for n in range(len(times))]
    return [(t, 250 + per_hour * t / 3600 + chance.uniform(-noise, noise) + high) for t, high in zip(times, spike, strict=True)]


@pytest.mark.parametrize("samples", [_samples(0), _samples(0, spikes=True), _samples(20), _samples(0, minutes=2)])
def test_scatter_and_spikes_are_flat(samples: list[tuple[float, float]]) -> None:
    """Nothing is kept."""
    assert is_flat(samples)


def test_a_leak_is_not_flat() -> None:
    """A hundred megabytes an hour, seen in a quarter of one."""
    samples = _samples(100)
    assert growth_mb(samples) == pytest.approx(100 * 0.25 * 0.7, rel=0.2)
    assert not is_flat(samples)


def test_what_fills_at_the_start_is_no_leak() -> None:
    """Caches and the allocator's pools."""
    assert is_flat([(t, mb - max(0.0, 200 - t)) for t, mb in _samples(0)])
