"""The code that a run was made with: its commit, and a digest that only what computes can change."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

from parts import leave_out

from curiax import _source

SOURCE = '''"""Words."""
# A comment.
X = "# kept"  # kept too: a line of code


class Method:
    """More words,
    on two lines."""

    def reward(self):
        """Even more."""
        return "not a docstring"
'''


def test_words_are_no_code() -> None:
    code = _source.bare(SOURCE)
    assert code == _source.bare(SOURCE.replace("More words,", "Other words,").replace("# A comment.", "# Another."))
    assert "kept" in code
    assert "not a docstring" in code
    assert "words" not in code.lower()


def parsed(source: str) -> str:
    """The same by Python's own parser."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        owner = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if owner and ast.get_docstring(node, clean=False) is not None:
            lines[node.body[0].lineno - 1 : node.body[0].end_lineno] = [""] * len(
                lines[node.body[0].lineno - 1 : node.body[0].end_lineno]
            )
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


def test_in_our_own_files_what_is_left_out_is_docstrings() -> None:
    files = [file for folder in _source.DECISIVE_FOLDERS for file in (_source.ROOT / folder).glob("*.py")]
    assert len(files) > 40
    for file in (*files, *(_source.ROOT / name for name in _source.DECISIVE)):
        assert _source.bare(file.read_text()) == parsed(file.read_text()), file.name


def test_code_that_is_said_to_be_alike_is_that_of_now() -> None:
    """As soon as the code is changed again, nothing is said to be alike any more until somebody has looked."""
    assert _source.code().digest == _source.NOW
    assert all(map(_source.gives_the_same, (*_source.ALIKE, _source.NOW)))
    assert not _source.gives_the_same("0" * 32)


def test_every_change_of_code_shows() -> None:
    code = _source.bare(SOURCE)
    for old, new in (("X =", "Y ="), ("not a docstring", "other"), ("        return", "    return")):
        assert _source.bare(SOURCE.replace(old, new)) != code


def ask(package: Path) -> list[str]:
    """What a copy of the package says of itself, in a process of its own."""
    code = f"import sys; sys.path.insert(0, {str(package.parent)!r}); from curiax._source import code; c = code(); "
    code += "import curiax; assert curiax.__path__[0] == sys.path[0] + '/curiax'; print(c.commit, c.changed, c.digest)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def git(folder: Path, *words: str) -> str:
    """Git, with an author."""
    author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    return subprocess.run(
        ["git", "-C", str(folder), *author, *words], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_commit_and_changes(tmp_path: Path) -> None:
    """Without a repository none is known; in one that tracks the package its commit is, and whether it still holds."""
    if not shutil.which("git"):
        leave_out("git", "it is not installed")
    package = tmp_path / "curiax"
    shutil.copytree(_source.ROOT, package, ignore=shutil.ignore_patterns("__pycache__", "data"))
    commit, changed, digest = ask(package)
    assert changed == "False"
    assert digest == _source.code().digest

    git(tmp_path, "init", "-q")
    (tmp_path / "notes").write_text("somebody's own repository, which does not track the package")
    git(tmp_path, "add", "notes")
    git(tmp_path, "commit", "-qm", "notes")
    assert ask(package)[0] == commit  # as before: the repository is not the package's

    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "package")
    assert ask(package) == [git(tmp_path, "rev-parse", "HEAD"), "False", digest]

    file = package / "agents" / "ppo.py"
    file.write_text(file.read_text() + "\n# A comment changes the file, not the numbers.\n")
    assert ask(package)[1:] == ["True", digest]
    file.write_text(file.read_text() + "\nLOOKED_AT = 4\n")
    assert ask(package)[2] != digest
