"""Without dp_accounting the library works, and the bridge says what is missing."""

import subprocess
import sys

import pytest

from jaxacct import interop


def test_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.delitem(sys.modules, "jaxacct.interop.read_events", raising=False)
    monkeypatch.delitem(vars(interop), "from_dp_event", raising=False)
    with pytest.raises(ImportError, match=r"from_dp_event needs dp_accounting: pip install 'jaxacct\[interop\]'"):
        interop.from_dp_event(None)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = interop.nothing
    assert dir(interop) == sorted(interop.__all__)


def test_the_package_itself_loads_no_peer():
    program = (
        "import sys, jaxacct, jaxacct.cli, jaxacct.interop\n"
        "assert not {'dp_accounting', 'jax_privacy', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
