"""The snippets of READMEs write files: each README runs in an empty folder."""

import pytest


@pytest.fixture(autouse=True)
def _in_an_empty_folder(request, tmp_path, monkeypatch):
    if request.node.name == "README.md":
        monkeypatch.chdir(tmp_path)
