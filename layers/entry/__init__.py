"""The outermost part: opening an application, the command line, and what is laid over the package root."""
