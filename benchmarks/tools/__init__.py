"""Commands that measure in addition to asv, each with --help.

`record` adds to the history, `compare` compares two commits, `check` compares counters and machine
code for CI; `conversion`, `tiers`, `figures` and `readme` make the figures of READMEs. Exit codes:
0; 1 if something got worse; 2 if nothing could be measured.
"""
