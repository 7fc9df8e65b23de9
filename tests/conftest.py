"""How long properties are looked for: briefly in `make test`, at length in `make soak`; and a Ctrl-C that is heard.

What a shell starts in its background ignores Ctrl-C, and every process that a test starts inherits that.
"""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# No deadline: what a single example takes says more about the machine than about the code.
settings.register_profile("test", deadline=None, print_blob=True)
settings.register_profile("soak", deadline=None, print_blob=True, max_examples=5_000)
settings.load_profile("soak" if os.environ.get("STEPWELL_SOAK") else "test")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
