"""Settings that make a short-lived process start fast."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def cache_compilations(jax: Any) -> None:
    """Keeps compiled programs in the user's cache folder, where JAX was not told of one: later calls start fast."""
    if jax.config.jax_compilation_cache_dir is None:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(base / "jaxacct" / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """No garbage collection: importing JAX and tracing make many objects that stay, and a question ends soon."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
