"""Report on this environment, and on what in it would stop a training or spoil it.

A check is a function that yields findings; a new one is that function and one line in :data:`report.CHECKS`. Nothing
here imports fairseq before the checks that decide whether it can be imported.
"""
