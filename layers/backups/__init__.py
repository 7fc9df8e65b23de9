"""Backup and restore, a part of what they do in each module."""
