"""Nothing in the product runs what it reads: every reader that could is on this list, with what makes it safe there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from healthctl.flight_recorder.dumps import DumpError, read_dump

ROOT = Path(__file__).parents[2]
HOUSES = ("vocabulary", "healthd", "preflight", "remediator", "healthctl")
# A call that can run a program from data, and where it may stand.
ALLOWED = {
    "pickle.loads": {"healthd/trainer/adapters/pytorch_state.py": "a job's own checkpoint, by that job"},
    "torch.load": {"healthd/trainer/adapters/pytorch_state_transfer.py": "a user's own copy in a directory of theirs alone"},
    "yaml.load": {
        "vocabulary/fault_catalogue/catalogue_file.py": "the loaders are safe ones",
        "preflight/baseline_files.py": "the loaders make texts, lists and dictionaries",
    },
    "yaml.compose": {"vocabulary/text/yaml_text.py": "with the safe loader", "remediator/playbook/yaml_source.py": "with the safe loader"},
}  # fmt: skip
NEVER = {
    *("pickle.load", "pickle.Unpickler", "marshal.load", "marshal.loads", "shelve.open", "dill.load", "cloudpickle.load"),
    *("yaml.unsafe_load", "yaml.full_load", "yaml.load_all", "jinja2.Template", "os.system", "os.popen"),
    *("subprocess.getoutput", "subprocess.getstatusoutput", "eval", "exec", "compile", "__import__", "tempfile.mktemp"),
    *("ssl._create_unverified_context", "numpy.load", "np.load", "tarfile.open", "zipfile.ZipFile", "logging.config.listen"),
}  # fmt: skip


def calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def files() -> list[Path]:
    return [path for house in HOUSES for path in sorted((ROOT / house).rglob("*.py"))]


def found(source: str) -> set[str]:
    """The names of the calls in a source that could run what they read, or a text as a shell."""
    tree = ast.parse(source)
    names = {ast.unparse(call.func) for call in calls(tree)} & (NEVER | ALLOWED.keys())
    shells = {"shell=True" for call in calls(tree) for word in call.keywords if _is(word, "shell", value=True)}
    unverified = {"verify=False" for call in calls(tree) for word in call.keywords if _is(word, "verify", value=False)}
    return names | shells | unverified


def _is(word: ast.keyword, name: str, *, value: bool) -> bool:
    return word.arg == name and isinstance(word.value, ast.Constant) and word.value.value is value


def test_no_reader_runs_what_it_reads() -> None:
    where = {(name, str(path.relative_to(ROOT))) for path in files() for name in found(path.read_text())}
    assert where == {(name, place) for name, places in ALLOWED.items() for place in places}


def test_pickles_of_others_are_read_by_a_reader_that_imports_nothing() -> None:
    """NCCL's flight recorder writes pickles; `tests/unit/healthctl/hang/test_hang_analysis.py` tries hostile ones."""
    source = (ROOT / "healthctl/flight_recorder/dumps.py").read_text()
    reader = next(
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "_PlainUnpickler"
    )
    bodies = {item.name: item.body for item in reader.body if isinstance(item, ast.FunctionDef)}
    assert all(isinstance(bodies[name][-1], ast.Raise) for name in ("find_class", "persistent_load"))
    assert len(bodies["find_class"]) == len(bodies["persistent_load"]) == 1


def test_a_dump_of_ten_bytes_gets_no_gigabytes(tmp_path: Path) -> None:
    """The number under which a pickle remembers a thing is the length of a table."""
    dump = tmp_path / "rank_0"
    dump.write_bytes(b"\x80\x04}r\xff\xff\xff\x0f.")
    with pytest.raises(DumpError, match="needs more memory than any valid dump"):
        read_dump(dump)


@pytest.mark.parametrize(
    "bad", ["pickle.load(f)", "yaml.unsafe_load(f)", "run(x, shell=True)", "get(u, verify=False)", "eval(x)"]
)
def test_the_list_is_looked_for(bad: str) -> None:
    assert found(bad)
