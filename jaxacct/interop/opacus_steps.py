"""What a step of an Opacus optimizer is, from its type, its loader and what it has accumulated; needs ``opacus``."""

from __future__ import annotations

from types import FrameType
from typing import Any

import opacus.optimizers as known  # pyright: ignore[reportMissingImports]
from opacus.privacy_engine import PrivacyEngine  # pyright: ignore[reportMissingImports]
from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler, UniformWithReplacementSampler  # pyright: ignore[reportMissingImports]

from jaxacct import _validate

# Each releases the sum of clipped gradients with noise of noise_multiplier times the norm that one record can move it
# by, and nothing else. Subclasses may release more: AdaClipDPOptimizer is one.
_OPTIMIZERS = (
    known.DPOptimizer,
    known.DPPerLayerOptimizer,
    known.DPOptimizerFastGradientClipping,
    known.DistributedDPOptimizer,
    known.SimpleDistributedPerLayerOptimizer,
    known.DistributedDPOptimizerFastGradientClipping,
    known.FSDPOptimizerFastGradientClipping,
)
_SAMPLERS = (UniformWithReplacementSampler, DistributedUniformWithReplacementSampler)


def check_optimizer(optimizer: object) -> None:
    """Raises ValueError unless one step of ``optimizer`` is known to release one noisy sum and nothing else.

    Types are compared exactly: a subclass may release more.
    """
    if type(optimizer) not in _OPTIMIZERS:
        names = ", ".join(one.__name__ for one in _OPTIMIZERS)
        raise ValueError(
            f"optimizer must be one of Opacus's {names}, itself and no subclass, got {type(optimizer).__name__}: what "
            "another one releases beside the noisy gradient (adaptive clipping: a count and the sample's size) is not "
            "accounted for"
        )
    # opacus.utils.adaptive_clipping sets this on a plain optimizer, and releases a noisy count.
    if hasattr(optimizer, "_adjusted_noise_multiplier"):
        raise ValueError(
            f"optimizer must clip at a norm that is not adapted to data, got {type(optimizer).__name__} with adaptive "
            "clipping, which releases a noisy count that is not accounted for"
        )


def check_loader(loader: object) -> float:
    """The sampling rate of a loader that draws Poisson samples.

    Raises:
        ValueError: any other loader: shuffled batches (``poisson_sampling=False``) are not what is accounted for.
    """
    sampler = getattr(loader, "batch_sampler", None)
    if type(sampler) not in _SAMPLERS:
        raise ValueError(
            "loader must draw Poisson samples (opacus.data_loader.DPDataLoader, make_private with "
            f"poisson_sampling=True), got {type(loader).__name__} with {type(sampler).__name__}: batches of a shuffled "
            "data set have another, larger privacy loss"
        )
    return float(sampler.sample_rate)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]


def rate_of_engine(caller: FrameType | None) -> float | None:
    """The rate of the loader that ``PrivacyEngine.make_private`` has made, where ``caller`` is it; None elsewhere.

    Opacus asks an accountant for a hook without a word about the sampler; the loader that it is about to return is in
    the frame that asks. It is None for one that does not draw Poisson samples.
    """
    if caller is None or caller.f_code is not PrivacyEngine.make_private.__code__:
        return None
    try:
        return check_loader(caller.f_locals.get("data_loader"))
    except ValueError:
        return None


def charged_step(optimizer: Any, rate: float) -> tuple[float, float]:
    """(noise, rate) that a step of ``optimizer`` is charged as: a Gaussian on a Poisson sample, of sensitivity 1.

    Where k batches were accumulated a record may be in each, and moves their sum by up to k clip norms: a k-th of the
    noise, without sampling.

    Raises:
        ValueError: an optimizer that `check_optimizer` refuses; a bad noise multiplier or rate.
    """
    check_optimizer(optimizer)
    noise, rate = valid_step(optimizer.noise_multiplier, rate)
    batches = int(optimizer.accumulated_iterations)
    return (noise, rate) if batches == 1 else (noise / batches, 1.0)


def valid_step(noise_multiplier: float, sample_rate: float) -> tuple[float, float]:
    """Both as floats.

    Raises:
        ValueError: noise that is negative, a rate outside (0, 1].
    """
    noise, rate = float(noise_multiplier), float(sample_rate)
    _validate.nonnegative(noise_multiplier=noise)
    _validate.positive(sample_rate=rate)
    _validate.rate(sample_rate=rate)
    return noise, rate
