"""What measures beside asv: commands, each with --help.

`record` the history, `compare` two commits, `check` counters and machine code for CI,
`conversion`, `tiers`, `figures` and `readme`. They end with 0, with 1 where something is worse, and
with 2 where nothing could be measured.
"""
