"""The parts of the step sandbox: where files are, how they are read and written, and how a body runs."""
