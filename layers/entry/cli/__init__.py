"""The command line: `stepwell`, on click and rich, which `import stepwell` does not load."""

from .command import main

__all__ = ["main"]
