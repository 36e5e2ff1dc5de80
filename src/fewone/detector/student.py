"""Student's quantile for whole degrees of freedom, in closed form: scipy.special takes a quarter of a second to import.

With theta = atan(t / sqrt(n)), P(|T| < t) is a finite sum over powers of cos(theta) (Abramowitz and Stegun 26.7.3-4).
"""

from __future__ import annotations

import math


def student_quantile(freedom: int, share: float) -> float:
    """The t that Student's variable stays below with probability `share`, from 1/2 to below 1.

    Examples
    --------
    >>> round(student_quantile(13, 0.975), 6)
    2.160369
    """
    low, high = 0.0, 1.0
    while _inside(high, freedom) < 2.0 * share - 1.0 and high < 1e12:
        low, high = high, 2.0 * high
    for _ in range(80):
        middle = 0.5 * (low + high)
        if _inside(middle, freedom) < 2.0 * share - 1.0:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def _inside(t: float, freedom: int) -> float:
    """P(|T| < t)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2 == 1
    term = total = 0.0 if freedom == 1 else (cosine if odd else 1.0)
    for power in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (power - 1) / power
        total += term
    return 2.0 / math.pi * (angle + sine * total) if odd else sine * total
