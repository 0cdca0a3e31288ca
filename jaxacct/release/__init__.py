"""Private counts, histograms, sums and means: noise that is exact, and charged to a budget before it is drawn.

    from jaxacct import Ledger, release

    found = release.count(ages > 40, Ledger("team.db"), scale=10, label="people over 40")
    print(found)  # the noisy count, what it cost and what is left; or why it was refused

`count`, `histogram`, `bounded_sum` and `mean` work out the sensitivity from bounds that are stated, ask a `Ledger` or a
filter, and draw only what was admitted; a refused request releases nothing. Noise is discrete Laplace (``scale``) or
discrete Gaussian (``sigma``) by `discrete_laplace` and `discrete_gaussian`, which use whole numbers alone and the
operating system's generator: the mechanism that is charged is the one that runs, to the last digit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxacct._on_demand import on_demand

if TYPE_CHECKING:
    from jaxacct.release.counts import count, histogram
    from jaxacct.release.released import Released
    from jaxacct.release.samplers import discrete_gaussian, discrete_laplace
    from jaxacct.release.sums import bounded_sum, mean

__all__ = ["Released", "bounded_sum", "count", "discrete_gaussian", "discrete_laplace", "histogram", "mean"]

__getattr__, __dir__ = on_demand(__name__)
