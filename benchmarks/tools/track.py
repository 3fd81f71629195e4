"""Track the ratios of another project: asv over the commits of its clone, with a file of cases.

    python -m benchmarks.tools.track cases.py ~/einops --steps 10
    asv publish --config einops-history/asv.conf.json

The folder that is made, `PACKAGE-history` if not said, is a project of asv's: plain `asv run`,
`asv continuous` and `asv publish` work in it from then on. A case is a function of the package and
of NumPy that returns what is measured and its baseline: see benchmarks/numpy_cases.py.
"""

import json
import subprocess
import sys
from pathlib import Path

from .exits import SAME, UNKNOWN, ending, parser_of
from .machines import machine
from .repository import ROOT, git
from .worker import load

MODULE = '''"""Ratios of the cases of {cases}, for asv."""

from importlib.util import module_from_spec, spec_from_file_location


def load(path):
    spec = spec_from_file_location(path.rpartition("/")[2].removesuffix(".py"), path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


measure = load("{root}/shapejit/bench/measure.py")
worker = load("{root}/benchmarks/tools/worker.py")
ratio = load("{root}/benchmarks/suite/ratio_benchmark.py")
measure.wait_shortly()


class Cases:
    """Time over the baseline's"""

    params = list(worker.load("{cases}").CASES)
    param_names = ("case",)
    version = "1"
    timeout = 300

    def setup(self, case):
        try:
            self.ways = worker.ways_of(case, file="{cases}")
        except AttributeError as fault:  # an older package lacks it
            raise NotImplementedError from fault

    def ratio_over_baseline(self, case, turns=ratio.TURNS):
        return ratio.ratios(measure, self.ways, turns)

    ratio_over_baseline.unit = "time / the baseline's"
'''


def project(folder, cases, clone):
    """Write a project of asv's; the path of its configuration."""
    (folder / "suite").mkdir(parents=True, exist_ok=True)
    (folder / "suite" / "__init__.py").touch()
    (folder / "suite" / "cases.py").write_text(MODULE.format(cases=cases, root=ROOT))
    config = json.loads((ROOT / "asv.conf.json").read_text())
    config |= {"project": load(cases).PACKAGE, "repo": str(clone)}
    config |= {"branches": [git("rev-parse", "--abbrev-ref", "HEAD", cwd=clone)]}
    config |= {"benchmark_dir": "suite", "results_dir": "results", "html_dir": "html"}
    config |= {"env_dir": "env", "matrix": {"req": {"numpy": config["matrix"]["req"]["numpy"]}}}
    path = folder / "asv.conf.json"
    path.write_text(json.dumps(config, indent=1) + "\n")
    return path


@ending
def main(argv=None):
    """0 recorded, 2 where asv or a benchmark failed."""
    from asv.machine import MachineCollection

    parser = parser_of(__file__, __doc__)
    parser.add_argument("cases", type=Path, metavar="FILE")
    parser.add_argument("clone", type=Path, metavar="CLONE", help="of the project")
    parser.add_argument("--folder", type=Path, help="PACKAGE-history if not said")
    parser.add_argument("--steps", type=int, default=1, metavar="N", help="commits; the last one")
    parser.add_argument("--quick", action="store_true", help="a turn each")
    args = parser.parse_args(argv)
    cases = args.cases.resolve()
    folder = args.folder or Path(f"{load(str(cases)).PACKAGE}-history")
    path = project(folder.resolve(), str(cases), args.clone.resolve())
    facts = machine()
    MachineCollection.save(facts["machine"], facts)
    span = "HEAD^!" if args.steps == 1 else "ALL"
    command = [sys.executable, "-m", "asv", "run", "--config", str(path), "--show-stderr"]
    command += ["--machine", facts["machine"], "--steps", str(args.steps)]
    command += ["--skip-existing-successful", *["--quick"] * args.quick, span]
    done = subprocess.run(command, cwd=folder, check=False)
    return UNKNOWN if done.returncode else SAME


if __name__ == "__main__":
    sys.exit(main())
