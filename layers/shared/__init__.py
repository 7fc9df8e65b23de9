"""Hosts of the shared tier: a folder, and a server that speaks the HTTP cache protocol of Bazel."""
