"""Quantiles, ratios of what was measured side by side, and how sure a ratio is."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

RESAMPLES = 1000


class MeasurementFailed(RuntimeError):
    """What was to be measured did not happen, so that a figure would mean something else; the message says what."""


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclass(slots=True)
class SideBySide:
    """Times of the same searches, each measured once through the gateway and once by hand, one right after the other."""

    gateway: list[float] = field(default_factory=list)
    parts: list[float] = field(default_factory=list)

    def ratio(self, share: float) -> float:
        """The gateway's quantile over that of the parts."""
        return quantile(self.gateway, share) / quantile(self.parts, share)

    def interval(self, share: float) -> tuple[float, float]:
        """The middle 95 % of the ratio over resampled pairs: a wide one says that the machine was too noisy."""
        pairs = list(zip(self.gateway, self.parts, strict=True))
        chance = random.Random(0)
        ratios = []
        for _ in range(RESAMPLES):
            gateway, parts = zip(*chance.choices(pairs, k=len(pairs)), strict=True)
            ratios.append(quantile(gateway, share) / quantile(parts, share))
        return quantile(ratios, 0.025), quantile(ratios, 0.975)
