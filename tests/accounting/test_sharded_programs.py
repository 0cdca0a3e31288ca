"""Public functions under `jax.shard_map`, with all of its checks, and over sharded arrays: on four virtual devices."""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxacct
from jaxacct import PLD, Gaussian, Laplace, LossGrid, PoissonSampled, PrivacyProfile, TradeOff, filters, supremum
from tests.processes import printed

GRID = LossGrid(0.25, -24, 49)
SIGMA = np.linspace(1.0, 2.0, 4, dtype=np.float32)


def _epsilon(s):
    return jaxacct.epsilon(PoissonSampled(Gaussian(s), 0.1), 1e-5, steps=10).upper


def _slope(s):
    return jax.vmap(jax.grad(_epsilon))(s)


def _compiled(function):
    def run(s):
        with jaxacct.without_callbacks():
            return function(s)

    return run


def _law(s, bound="upper"):
    return PLD.from_mechanism(Gaussian(s[0]), bound, grid=GRID)


def _profile(s, bound="upper"):
    return PrivacyProfile.from_mechanism(Gaussian(s), bound, grid=GRID)


def _admitted(budget, query):
    def run(s):
        """Three queries in a scan, and in a halting one."""

        def body(state, _):
            admitted, state = budget.update(query(s[0]), state)
            return state, admitted

        start = jax.tree.map(lambda x: x + jnp.zeros_like(x) * s[0].astype(x.dtype), budget.init())
        _, admitted = jax.lax.scan(body, start, None, length=2)
        halted = filters.halting_scan(lambda n, _: (query(s[0]), lambda: n + 1), budget, jnp.int32(0), length=2)
        return jnp.append(admitted, halted.steps)[None]

    return run


# From a device's part of SIGMA to an array with its part of the answers in front.
CASES = {
    "epsilon": _epsilon,
    "epsilon compiled": _compiled(_epsilon),
    "epsilon of Laplace": lambda s: jaxacct.epsilon(PoissonSampled(Laplace(s), 0.1), 1e-5, steps=10).upper,
    "delta": lambda s: jaxacct.delta(PoissonSampled(Gaussian(s), 0.1), 1.0).upper,
    "grad": _slope,
    "grad compiled": _compiled(_slope),
    "law": lambda s: _law(s).hockey_stick(0.5)[None],
    "lower law": lambda s: _law(s, "lower").self_compose(2).hockey_stick(0.5)[None],
    "law's trade_off": lambda s: _law(s).compose(PLD.identity(GRID)).trade_off(0.5)[None],
    "tilt": lambda s: _law(s).tilt(1.0).log_moment(1.0)[None],
    "profile": lambda s: _profile(s).symmetrise().hockey_stick(0.5),
    "lower profile": lambda s: _profile(s, "lower").reflect().hockey_stick(0.5),
    "lower profile's law": lambda s: _profile(s, "lower").to_pld().hockey_stick(0.5),
    "trade-off": lambda s: TradeOff.from_profile(_profile(s)).trade_off(0.5),
    "supremum": lambda s: supremum([_profile(s), _profile(2 * s)]).hockey_stick(0.5),
    "dominates": lambda s: jaxacct.dominates(_profile(s), PrivacyProfile.from_mechanism(Gaussian(1.5), grid=GRID)).gap,
    "pure_dp": _admitted(filters.pure_dp(1.0), lambda t: Laplace(50.0 * t)),
    "renyi": _admitted(filters.renyi(3.0, 1e-5, order=8), lambda t: Gaussian(10.0 * t)),
    "gdp_residue": _admitted(filters.gdp_residue(1.0), lambda t: Gaussian(10.0 * t)),
    "approximate_dp": _admitted(filters.approximate_dp(2.0, 1e-5), lambda t: Gaussian(25.0 * t)),
    "odometer": _admitted(filters.odometer(filters.gdp(1.0)), lambda t: Gaussian(10.0 * t)),
}


def main(page: str) -> None:
    """In a process of its own, with four virtual devices: prints a line for each case."""
    assert jax.device_count() == 4
    mesh = jax.make_mesh((4,), ("x",))
    parts = jax.device_put(SIGMA, NamedSharding(mesh, P("x")))
    for name, case in CASES.items():
        found = jax.jit(jax.shard_map(case, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(parts)
        alone = jnp.concatenate([jax.jit(case)(jnp.asarray(SIGMA[i : i + 1])) for i in range(4)])
        np.testing.assert_allclose(found, alone, rtol=1e-5, err_msg=name)
        print("agrees:", name)
    with pytest.raises(ValueError, match="replicat"):
        jax.jit(jax.shard_map(_epsilon, mesh=mesh, in_specs=P("x"), out_specs=P()))(parts)
    print("refused: what differs is declared the same")
    same = jax.jit(jax.shard_map(_epsilon, mesh=mesh, in_specs=P(), out_specs=P()))(SIGMA)
    np.testing.assert_allclose(same, _epsilon(SIGMA), rtol=1e-5)
    print("agrees: what is the same is declared the same")
    alone = jax.jit(_compiled(_epsilon))(jnp.asarray(SIGMA))
    for kind in (jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit):
        axes = jax.make_mesh((4,), ("x",), axis_types=(kind,))
        placed = jax.device_put(jnp.asarray(SIGMA), NamedSharding(axes, P("x")))
        found = jax.jit(_compiled(_epsilon))(placed)
        assert kind == jax.sharding.AxisType.Auto or found.sharding.is_equivalent_to(placed.sharding, 1)
        np.testing.assert_allclose(found, alone, rtol=1e-5)
        assert _profile(placed).excess.sharding.device_set == set(jax.devices())
    third = jax.device_put(jnp.float32(1.0), jax.devices()[2])
    assert _law(third[None]).self_compose(2).masses.devices() == {jax.devices()[2]}
    print("agrees: arrays that are sharded")
    for block in re.findall(r"^```python\n(.*?)^```$", pathlib.Path(page).read_text("utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(block, page, "exec"), {"__name__": "page"})
    print("agrees: the page")


PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "how-to" / "sweeps-over-devices.md"


@pytest.mark.slow
def test_four_devices_find_what_one_finds_and_the_page_on_them_runs():
    program = "import sys; from tests.accounting.test_sharded_programs import main; main(sys.argv[1])"
    lines = printed(program, PAGE, devices=4).splitlines()
    for name in [*CASES, "what is the same is declared the same", "arrays that are sharded", "the page"]:
        assert f"agrees: {name}" in lines
    assert "refused: what differs is declared the same" in lines
