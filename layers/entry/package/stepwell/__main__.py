"""`python -m stepwell` is the `stepwell` command."""

from stepwell.layers.entry.cli import main

raise SystemExit(main())
