"""Sums of exponentials at equally spaced points, by one product of matrices."""

from __future__ import annotations

import math

from flint import acb_mat

from jaxacct.certificates.balls import acb, arb


def power_sums(weights: list[arb], phases: list[arb], count: int) -> list[acb]:
    """sum_j weights[j] exp(i k phases[j]) for k from 0 to ``count`` - 1.

    With k = a B + b the sum is an entry of the product of (weights[j] exp(i a B phases[j])) and (exp(i b phases[j])),
    so that exponentials are taken for about twice the square root of ``count`` values of k only.
    """
    if count == 1:
        return [acb(sum(weights[1:], weights[0]))]
    block = math.isqrt(count - 1) + 1
    rows = -(-count // block)
    turns = [acb(arb(0), phase) for phase in phases]
    both = list(zip(weights, turns, strict=True))
    left = [[weight * (turn * (a * block)).exp() for weight, turn in both] for a in range(rows)]
    right = [[(turn * b).exp() for b in range(block)] for turn in turns]
    product = acb_mat(left) * acb_mat(right)
    return [product[k // block, k % block] for k in range(count)]
