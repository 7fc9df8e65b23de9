"""Commands as bodies: isolated by bubblewrap, watched by a seccomp listener, and only where both are proved to work."""
