"""Settings that make a short-lived process start fast."""

from __future__ import annotations

import contextlib
import platform


def cache_compilations() -> None:
    """Keeps compiled programs beside the tables, unless the user has a place for them: later calls start fast.

    One folder for each machine: a program for one processor may not run on another that shares the home directory.
    """
    import jax

    from jaxacct.filters.prices import kept as cache

    if jax.config.values["jax_compilation_cache_dir"] is None:
        below = "compiled", platform.node() or "here"
        with contextlib.suppress(OSError):
            if cache.own_folder(*below):  # a program that somebody else put there would be run
                jax.config.update("jax_compilation_cache_dir", str(cache.directory().joinpath(*below)))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
