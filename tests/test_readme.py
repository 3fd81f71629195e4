"""Every command of the READMEs runs; their Python snippets run as doctests."""

import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import shapejit as sj
from shapejit.__main__ import main
from shapejit.conversion import RULES

ROOT = Path(__file__).parent.parent
TESTS = "-m pytest -n auto --dist loadfile"
READMES = {
    name: (ROOT / name).read_text()
    for name in (
        "README.md",
        "shapejit/README.md",
        "shapejit/files/README.md",
        "benchmarks/README.md",
    )
}
README = READMES["README.md"]


def commands(language, texts):
    """The lines of all blocks of a language."""
    blocks = [b for text in texts for b in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)]
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


COMMANDS = commands("sh", READMES.values())


@pytest.mark.parametrize(
    "command", sorted({c.split("#")[0].strip() for c in COMMANDS if "-m benchmarks." in c})
)
def test_commands_of_the_benchmarks_parse(command, monkeypatch):
    """With all their words; what they measure would take minutes."""

    class ParsedError(BaseException):
        pass

    def parsed(parser, argv=None):
        monkeypatch.undo()  # the real one calls the other
        real = parser.parse_args if name == "parse_args" else parser.parse_known_args
        raise ParsedError(real(argv))

    _, module, *words = shlex.split(command)[1:]
    main_of = import_module(module).main
    name = "parse_known_args" if module.endswith("figures") else "parse_args"
    monkeypatch.setattr(ArgumentParser, name, parsed)
    with pytest.raises(ParsedError):
        main_of(words)
    with pytest.raises(SystemExit) as done:
        main_of(["--help"])
    assert done.value.code == 0


@pytest.mark.parametrize("command", dict.fromkeys(c for c in COMMANDS if c.startswith("shapejit ")))
def test_commands(command, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = {
        "layers.0.q_proj.weight": np.arange(4 * 16 * 64, dtype=np.float32).reshape(64, 64),
        "embed": np.arange(64, dtype=np.float32).reshape(4, 16),
    }
    for name in ("model.safetensors", "out.safetensors"):
        safetensors.save_file(tensors, tmp_path / name)
    parts = sj.schemes["fp8:channel"].encode(np.eye(8, dtype=np.float32))
    (tmp_path / "model-fp8").mkdir()
    weights = {f"model.fc.{part}": t for part, t in parts.items()}
    weights["model.norm.weight"] = np.ones(8, np.float32)
    sj.save_file(weights, tmp_path / "model-fp8" / "model.safetensors")
    words = [sys.executable, "-m", *shlex.split(command)]
    if words[3] == "convert" and not (source := tmp_path / words[4]).exists():  # of floats
        source.mkdir()
        kind = source.name.removeprefix("model-")
        floats = {name: sj.cast(t, kind) for name, t in tensors.items()}
        sj.save_file(floats, source / "model.safetensors")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_parts_are_converted_as_their_readme_says(tmp_path, monkeypatch, capsys):
    """Its blocks are one session: the parts of a folder, their commit, another folder."""
    parts = sj.schemes["fp8:channel"].encode(np.eye(8, dtype=np.float32))
    (tmp_path / "model-fp8").mkdir()
    weights = {f"{k}.fc.{part}": t for k in range(3) for part, t in parts.items()}
    sj.save_file(weights, tmp_path / "model-fp8" / "model.safetensors")
    monkeypatch.chdir(tmp_path)
    for command in commands("bash", [READMES["shapejit/files/README.md"]]):
        assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model-bf16", "model-f16", "model-fp8"]
    assert [t.dtype.name for t in sj.load_file("model-bf16").values()] == ["bfloat16"] * 3


def test_every_rule_is_listed_as_its_row_says():
    rows = [f"| `--{name} '{kind.form}'` | {kind.text} |" for name, kind in RULES.items()]
    assert "\n".join(["| rule | what it does |", "|---|---|", *rows, ""]) in README


def test_a_file_of_rules_is_read_as_it_stands_in_the_readme(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "rules.toml").write_text(text)
    parts = sj.schemes["fp8:channel"].encode(np.eye(8, dtype=np.float32))
    weights = {f"model.fc.{part}": t for part, t in parts.items()}
    sj.save_file(weights, tmp_path / "a.safetensors")
    words = ["convert", tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    assert main([*map(str, words), "--rules", str(tmp_path / "rules.toml")]) == 0
    assert [*sj.load_file(tmp_path / "b.safetensors")] == ["fc.weight"]


def test_continuous_integration_runs_the_commands_of_the_readme_as_they_stand_there():
    script = (ROOT / ".ci" / "run").read_text()
    taken = [line for line in README.splitlines() if line.startswith("python3 -m venv ")]
    install, test = (c for c in commands("sh", [README]) if c.startswith("python3 -m venv"))
    assert taken == [install, test]
    assert "grep '^python3 -m venv ' README.md" in script
    for k in range(2):
        assert f'bash -c "${{commands[{k}]}}"' in script
    assert install.endswith(".venv/bin/pip install . && .venv/bin/shapejit demo")
    assert test.endswith(".venv/bin/pip install -e '.[test]' && .venv/bin/python " + TESTS)


def test_tests_are_collected_without_torch():
    code = "import sys, pytest; sys.modules['torch'] = None; sys.exit(pytest.main(sys.argv[1:]))"
    files = ["shapejit/adapters", "tests/test_torch.py", "tests/test_collate.py"]
    words = [sys.executable, "-c", code, "-q", "--collect-only", "-p", "no:cacheprovider", *files]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def anchor(title):
    """What GitHub calls the section of a title."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("name", READMES)
def test_links_to_sections_lead_somewhere(name):
    for path, section in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", READMES[name]):
        text = (ROOT / name).parent.joinpath(path).read_text() if path else READMES[name]
        titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert section in map(anchor, titles), (path, section)


def test_the_contents_of_the_readme_are_its_sections_in_their_order():
    contents, rest = README.partition("## Contents\n")[2].split("\n## ", 1)
    listed = re.findall(r"\(#([^)]+)\)", contents)
    sections = [anchor(title) for title in re.findall(r"^## (.*)$", f"## {rest}", re.MULTILINE)]
    assert listed == [name for name in sections if name != "licence"]


def test_the_readme_says_at_once_what_it_is_for_and_how_long_things_take():
    assert "shapejit convert" in "\n".join(README.splitlines()[:12])
    for command in commands("sh", [README]):
        if command.startswith("python3 -m venv"):
            before = README[: README.index(command)].split("\n\n")[-2]
            assert "minute" in before


def test_the_image_of_a_container_is_warmed_up_as_the_command_line_has_it():
    (run,) = (line for line in commands("dockerfile", [README]) if line.startswith("RUN "))
    (command,) = (part for part in run.split(" && ") if part.startswith("shapejit "))
    words = [sys.executable, "-m", *shlex.split(command), "--help"]
    assert subprocess.run(words, capture_output=True).returncode == 0


@pytest.mark.parametrize("name", READMES)
def test_links_lead_somewhere(name):
    found = re.findall(r"\]\((?!https?:)([^)#]+)|(?:src|srcset)=\"([^\"]+)", READMES[name])
    assert found
    for target in map("".join, found):
        assert ((ROOT / name).parent / target).exists(), target


def test_words_of_troubleshooting_are_those_of_errors():
    """What people search for is what they see."""
    for call, words in (
        (lambda: sj.dtype("float"), "the dtype 'float' is ambiguous"),
        (lambda: sj.reshape(np.ones((2, 3)).T, (6,), copy=False), ", which copy=False forbids"),
        (lambda: sj.cast(np.ones(2), "uint3"), "NumPy has no uint3"),
    ):
        assert words in README
        with pytest.raises(sj.ShapeJitError, match=re.escape(words)):
            call()


def test_the_table_of_packages_has_all():
    table = READMES["shapejit/README.md"].partition("| package | what belongs there |")[2]
    named = set(re.findall(r"`(\w+)/?`", table))
    packages = {path.stem for path in (ROOT / "shapejit").iterdir() if path.name[0] not in "_."}
    assert packages - named == {"README", "py"}


def test_a_tensor_goes_through_convert_as_the_readme_says(tmp_path):
    """The functions of the table are called in its order, once, each in a module of its own."""
    text = READMES["shapejit/README.md"].partition("### One tensor through")[2]
    rows = re.findall(r"^\| `(.*?)` \| `(.*?)` \|", text.partition("## ")[0], re.MULTILINE)
    wanted = [
        (f"shapejit/{module}.py", "Tensors.__init__" if name == "Tensors" else name)
        for module, name in rows
    ]
    assert len({module for module, _ in wanted}) == len(wanted) <= 9
    parts = sj.schemes["fp8:channel"].encode(np.ones((8, 64), np.float32))
    (tmp_path / "in").mkdir()
    sj.save_file({f"fc.{k}": t for k, t in parts.items()}, tmp_path / "in" / "model.safetensors")
    called = []

    def note(frame, event, _):
        if event == "call":
            path = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
            called.append((path, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        words = ["convert", str(tmp_path / "in"), str(tmp_path / "out"), "--to", "bf16"]
        assert main([*words, "--no-proof"]) == 0
    finally:
        sys.setprofile(None)
    assert [each for each in called if each in wanted] == wanted
