"""How long properties are looked for: briefly in `make test`, at length in `make soak`."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: what a single example takes says more about the machine than about the code.
settings.register_profile("test", deadline=None, print_blob=True)
settings.register_profile("soak", deadline=None, print_blob=True, max_examples=5_000)
settings.load_profile("soak" if os.environ.get("STEPWELL_SOAK") else "test")
