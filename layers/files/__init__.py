"""Hosts that are folders: artifacts as files."""
