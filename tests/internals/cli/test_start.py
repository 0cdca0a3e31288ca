"""Settings of a short-lived process."""

import os

import jax
import pytest

from jaxacct.cli.start import cache_compilations

SETTINGS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="a system whose rights are not in modes")
def test_compiled_programs_are_kept_only_where_nobody_else_can_put_any(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path / "tables"))
    before = {name: jax.config.values[name] for name in SETTINGS}
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        cache_compilations()
        made = jax.config.values["jax_compilation_cache_dir"]
        assert os.stat(made).st_mode & 0o777 == 0o700
        for harmed in (tmp_path / "tables", tmp_path / "tables" / "compiled", made):
            os.chmod(harmed, 0o770)
            jax.config.update("jax_compilation_cache_dir", None)
            cache_compilations()
            assert jax.config.values["jax_compilation_cache_dir"] is None
            os.chmod(harmed, 0o700)
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
