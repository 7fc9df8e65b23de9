"""What is executed outside of the program: the launcher, and a keeper for each command.

These modules import the standard library and each other, and nothing else: they are started by path, by a bare
interpreter, and have to be there within milliseconds.
"""
