"""How rarely fair signs reach a sum: bounds on the tail of a weighted sum of signs of chance.

Both hold for all weights, so whatever the recording is. Knows numbers only: no levels, no keys.
docs/spec.md, section 5.4, derives them.
"""

import math

import numpy as np
import numpy.typing as npt

# A weighted sum of fair signs exceeds z of its standard deviations at most this much more often
# than a normal variable does, for all weights and all z (Bentkus and Dzindzalieta, 2015).
RADEMACHER = 1 / (2 * math.erfc(1.0))
# How far the distribution of a sum may lie from a normal one, in units of the sum of third moments
# over the cube of its deviation (Shevtsova, 2010).
BERRY_ESSEEN = 0.56
LEAST_Z = 1.0  # below it the first bound is as good


def of_z(z: float) -> float:
    """Return a bound on the chance that fair signs, whatever their weights, reach z."""
    return min(1.0, RADEMACHER * math.erfc(z / math.sqrt(2)) / 2)


def of_sum(weights: npt.NDArray[np.float64], total: float) -> float:
    """Return a bound on the chance that fair signs with these weights sum to a total at least.

    Where many weights are small the sum is tilted until the total is what it comes to by chance,
    and taken for a normal one there, as far off as it may be: a third of the other bound.
    """
    root = math.sqrt(float(np.square(weights).sum()))
    if root <= 0 or total <= 0:
        return 1.0
    z, own = total / root, np.abs(weights) / root
    plain, tilted = of_z(z), z * own
    leaning = np.tanh(tilted)
    deviation = math.sqrt(float((np.square(own) * (1 - leaning**2)).sum()))
    if z < LEAST_Z or deviation <= 0:
        return plain
    third = float((own**3 * (1 - leaning**4)).sum())
    log_moment = float((tilted + np.log1p(np.exp(-2 * tilted)) - math.log(2)).sum())  # log cosh
    share = 1 / (z * deviation * math.sqrt(2 * math.pi)) + 2 * BERRY_ESSEEN * third / deviation**3
    return min(plain, math.exp(min(0.0, log_moment - z * z)) * min(1.0, share))
