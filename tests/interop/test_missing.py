"""Without dp_accounting the library works, and the bridge says what is missing."""

import sys
import types

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


@pytest.mark.parametrize("lost", ["module", "name", "class"])
def test_a_later_jax_privacy_says_what_takes_the_place_of_accountantconfig(monkeypatch, lost):
    """Its head has moved the accountants: as a module that is gone, a name, or a class in it."""
    pytest.importorskip("dp_accounting")
    home, accounting = types.ModuleType("jax_privacy"), types.ModuleType("jax_privacy.accounting")
    home.__path__, accounting.__path__ = [], []
    monkeypatch.setitem(sys.modules, "jax_privacy", home)
    if lost != "module":
        monkeypatch.setitem(sys.modules, "jax_privacy.accounting", accounting)
    if lost == "class":
        accountants = types.ModuleType("jax_privacy.accounting.accountants")
        monkeypatch.setitem(sys.modules, accountants.__name__, accountants)
        monkeypatch.setattr(accounting, "accountants", accountants, raising=False)
    monkeypatch.delitem(sys.modules, "jaxacct.interop.jax_privacy", raising=False)
    monkeypatch.delitem(vars(interop), "AccountantConfig", raising=False)
    with pytest.raises(ImportError, match=r"later ones take interop\.Accountant as it is"):
        interop.AccountantConfig()
