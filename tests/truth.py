"""An independent evaluation of delta: Laplace inversion along the saddle-point contour, no lattice of losses."""

import numpy as np


def contour_delta(sigma, rate, steps, epsilon, *, reverse=False):
    """delta(epsilon) of ``steps`` Poisson-sampled Gaussians, from a trapezoid sum over the outcome."""
    x = np.linspace(-38 * sigma - 1, 38 * sigma + 2, 4001)
    log_base = -0.5 * (x / sigma) ** 2 - np.log(sigma * np.sqrt(2 * np.pi))
    ratio = np.logaddexp(np.log1p(-rate), np.log(rate) + (x - 0.5) / sigma**2)
    loss, log_p = (-ratio, log_base) if reverse else (ratio, log_base + ratio)
    return contour_delta_of(loss, log_p + np.log(x[1] - x[0]), steps, epsilon)


def contour_delta_of(loss, log_p, steps, epsilon):
    """delta(epsilon) of ``steps`` runs with these losses and log masses; nodes doubled until two agree to 1e-10.

    With M(t) = E_P[exp(t L)], delta = (1 / 2 pi) int M(t + iw)^T exp(-(t + iw) eps) / ((t + iw)(t + iw + 1)) dw
    for any t > 0.
    """

    def log_mgf(z):
        exponent = log_p[None] + z[:, None] * loss[None]
        top = exponent.real.max(1, keepdims=True)
        return np.log(np.exp(exponent - top).sum(1)) + top[:, 0]

    def exponent_at(t):
        return (steps * log_mgf(np.array([t + 0j]))[0]).real - t * epsilon - np.log(t * (t + 1))

    grid = np.exp(np.linspace(np.log(1e-3), np.log(300.0), 400))
    t = grid[np.argmin([exponent_at(value) for value in grid])]
    h = 1e-3 * t
    curvature = (exponent_at(t + h) - 2 * exponent_at(t) + exponent_at(t - h)) / h**2

    def integrand(w):
        z = t + 1j * w
        return np.exp(steps * log_mgf(z) - z * epsilon - level) / (z * (z + 1))

    level = (steps * log_mgf(np.array([t + 0j]))[0]).real - t * epsilon
    # Wide enough that nothing is left: a rarely sampled loss keeps a plateau long after its first decay.
    width = 10 / np.sqrt(curvature)
    while np.abs(integrand(np.linspace(width, 2 * width, 50))).max() > 1e-13 / (t * (t + 1)):
        width *= 1.5
    width *= 2

    def integral(nodes):
        w = np.linspace(0, width, nodes)
        value = np.concatenate([integrand(some) for some in np.array_split(w, max(1, nodes // 500))])
        return np.trapezoid(value.real, w) / np.pi * np.exp(level)

    nodes, before = 129, np.inf
    while True:
        now = integral(nodes)
        if abs(now - before) <= 1e-10 * abs(now):
            return now
        assert nodes < 50_000, "the contour integral does not converge"
        nodes, before = 2 * nodes - 1, now
