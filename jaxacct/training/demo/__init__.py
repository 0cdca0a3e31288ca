"""Data sets and networks for examples and for ``jaxacct train``; not for work of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxacct._on_demand import on_demand

if TYPE_CHECKING:
    from jaxacct.training.demo.data import load_data
    from jaxacct.training.demo.models import build_network

__all__ = ["build_network", "load_data"]

__getattr__, __dir__ = on_demand(__name__)
