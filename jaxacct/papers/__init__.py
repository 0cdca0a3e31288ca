"""Results of the three papers that accounting does not rest on: moments of privacy losses and their central limit.

Theorem 4.1 of the f-DP filters paper approximates the moments of a sampled Gaussian's privacy loss
(`approximate_moments`; `loss_moments` computes them), Theorem 4.2 is a central limit theorem for adaptive sums of
losses (`clt`, `clt_of_box`), and Theorem 4.3 applies it to a filter (``filters.approximate_gdp(...).clt(...)``). None
of these numbers is a bound. The page "The papers, mapped" says where everything else of the papers is.
"""

from jaxacct.papers.central_limit import clt, clt_of_box
from jaxacct.papers.moments import approximate_moments, loss_moments

__all__ = ["approximate_moments", "clt", "clt_of_box", "loss_moments"]
