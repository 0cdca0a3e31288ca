"""What a result was measured on."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform
from typing import Any


def about(*packages: str) -> dict[str, Any]:
    """The processor, its cores, how busy it was, and versions."""
    model = platform.processor() or platform.machine()
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": model,
        "cores": cores,
        "load_average_at_start": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in (*packages, "jax", "jaxlib", "numpy", "scipy")},
    }
