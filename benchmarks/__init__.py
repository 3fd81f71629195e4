"""asv benchmarks, one module a noun of the package; cases are only ever appended.

asv runs this folder against the shapejit of any commit. So the tables, the
clocks and the baselines are those of the checkout that this folder lies in
(`tables`, `ratios`, `memcpy`), the same for all commits, and the measured
package is imported where it is used, by `ratios.installed`: what a commit lacks
is "n/a" there. No module here may import shapejit at its top: asv forks its
benchmarks, and shapejit stays on one thread in a forked child.

A new noun is a module with a class such as `resolver.Resolve`: which cases there
are (`params`), how one is run and beside what (`ways`), a `version`. Everything
else follows from that.

Commands, each with --help: `python -m benchmarks.record`, `compare`,
`machine_code`, `figures`, `readme`, `demonstration`. All end with 0, with 1 where something is
worse, and with 2 where nothing could be measured.
"""
