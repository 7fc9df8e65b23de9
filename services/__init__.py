"""The services: one Protocol each, with its failures and its values. Async, and without any implementation."""
