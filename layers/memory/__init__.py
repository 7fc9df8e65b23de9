"""Hosts in memory: deterministic, gone with the process, and bound by the same contracts as the durable ones."""
