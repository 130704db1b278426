"""Drawing snapshots: `render` turns one into an RGB image."""

from ._render import render

__all__ = ["render"]
