"""What drives runs: one driver a run, one worker an engine."""
